#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace apus::train {

/// What a key of another program's configuration does here.
enum class KeyEffect {
  kActs,      ///< it is obeyed
  kNoEffect,  ///< it has no meaning here, and is named once
  kRefused,   ///< it asks for what is not possible
};

/// What a key's value must be.
enum class KeyKind { kAny, kBoolean, kInteger, kNumber, kNumbers, kText, kTexts, kSection };

/// Whether "auto" may stand for a key's value.
enum class KeyAuto { kNo, kYes };

/// One key, under its path ("zero_optimization.stage"). A path that others go on from is a section.
struct ConfigKey {
  std::string_view path = {};
  KeyKind kind = KeyKind::kAny;
  KeyEffect effect = KeyEffect::kActs;
  /// JSON values, parted by '|', that say what happens anyway: never refused, and not named. A section that
  /// is refused is taken where it is empty or says "enabled": false.
  std::string_view harmless = {};
  /// kRefused: what to do instead. kNoEffect: why.
  std::string_view note = {};
  KeyAuto takes_auto = KeyAuto::kNo;
};

/// A key that acts.
constexpr ConfigKey acting(std::string_view path, KeyKind kind) {
  return {.path = path, .kind = kind};
}

/// A key that acts, and may be left to the flags.
constexpr ConfigKey automatic(std::string_view path, KeyKind kind) {
  return {.path = path, .kind = kind, .takes_auto = KeyAuto::kYes};
}

/// A key without effect, but where it says what happens anyway.
constexpr ConfigKey idle(std::string_view path, KeyKind kind, std::string_view why,
                         std::string_view harmless = {}) {
  return {.path = path,
          .kind = kind,
          .effect = KeyEffect::kNoEffect,
          .harmless = harmless,
          .note = why,
          .takes_auto = KeyAuto::kYes};
}

/// A key that only says what happens anyway.
constexpr ConfigKey refused(std::string_view path, KeyKind kind, std::string_view harmless,
                            std::string_view remedy) {
  return {.path = path, .kind = kind, .effect = KeyEffect::kRefused, .harmless = harmless, .note = remedy};
}

/// Looks at every key of a configuration. A null counts as absent.
/// Returns:     paths of the keys without effect, sorted.
/// Throws:      ConfigError beginning with `source` for a key that nobody knows (naming the nearest), a value
///              of the wrong kind, or an "auto" that nothing resolves; NotSupported for a key that is
///              refused.
std::vector<std::string> check_keys(const nlohmann::json& config, std::span<const ConfigKey> keys,
                                    const std::string& source);

/// The value at a path; null if there is none.
const nlohmann::json* value_at(const nlohmann::json& config, std::string_view path);

}  // namespace apus::train
