#include "train/config_keys.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/base/nearest_name.h"

namespace apus::train {
namespace {

using nlohmann::json;

constexpr const char* kAuto = "auto";

bool is_whole(const json& value) {
  if (value.is_number_integer()) return true;
  return value.is_number_float() && std::floor(value.get<double>()) == value.get<double>() &&
         std::abs(value.get<double>()) < 9e15;
}

template <typename Test>
bool all_are(const json& value, Test&& test) {
  return value.is_array() && std::ranges::all_of(value, test);
}

bool fits(const json& value, KeyKind kind) {
  const auto is_number = [](const json& one) { return one.is_number(); };
  const auto is_text = [](const json& one) { return one.is_string(); };
  switch (kind) {
    case KeyKind::kAny:
      return true;
    case KeyKind::kBoolean:
      return value.is_boolean();
    case KeyKind::kInteger:
      return is_whole(value);
    case KeyKind::kNumber:
      return value.is_number();
    case KeyKind::kNumbers:
      return all_are(value, is_number);
    case KeyKind::kText:
      return value.is_string();
    case KeyKind::kTexts:
      return value.is_string() || all_are(value, is_text);
    case KeyKind::kSection:
      return value.is_object();
  }
  return false;
}

const char* words_for(KeyKind kind) {
  switch (kind) {
    case KeyKind::kAny:
      return "a value";
    case KeyKind::kBoolean:
      return "true or false";
    case KeyKind::kInteger:
      return "a whole number";
    case KeyKind::kNumber:
      return "a number";
    case KeyKind::kNumbers:
      return "a list of numbers";
    case KeyKind::kText:
      return "a string";
    case KeyKind::kTexts:
      return "a string or a list of strings";
    case KeyKind::kSection:
      return "an object";
  }
  return "a value";
}

/// Whether the value is one of those, parted by '|', that a key may always have.
bool is_harmless(const json& value, std::string_view harmless) {
  while (!harmless.empty()) {
    const size_t bar = harmless.find('|');
    if (json::parse(harmless.substr(0, bar)) == value) return true;
    harmless = bar == harmless.npos ? std::string_view() : harmless.substr(bar + 1);
  }
  return false;
}

std::string_view last_name(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == path.npos ? path : path.substr(dot + 1);
}

/// One walk over a configuration.
class Walk {
 public:
  Walk(std::span<const ConfigKey> keys, std::string source) : keys_(keys), source_(std::move(source)) {}

  void section(const json& object, const std::string& where) {
    for (const auto& [name, value] : object.items()) {
      APUS_CHECK(name.find('.') == name.npos, ConfigError, source_, ": nobody knows the key \"", name,
                 "\": a section is an object of its own, as in {\"zero_optimization\": {\"stage\": 2}}");
      const std::string path = where.empty() ? name : where + "." + name;
      if (!value.is_null()) one(path, value);
    }
  }

  std::vector<std::string> idle() && {
    std::ranges::sort(idle_);
    return std::move(idle_);
  }

 private:
  void one(const std::string& path, const json& value) {
    const auto key = std::ranges::find(keys_, std::string_view(path), &ConfigKey::path);
    if (key == keys_.end() && !has_parts(path)) throw unknown(path);
    const KeyKind kind = key == keys_.end() ? KeyKind::kSection : key->kind;
    if (key != keys_.end() && is_harmless(value, key->harmless)) return;
    if (value == kAuto && kind != KeyKind::kSection) return check_auto(*key);
    APUS_CHECK(fits(value, kind), ConfigError, source_, ": ", path, " must be ", words_for(kind), ", got ",
               dump_json(value));
    if (key == keys_.end()) return section(value, path);
    if (key->effect == KeyEffect::kRefused) return refuse(*key, value);
    if (kind == KeyKind::kSection) section(value, path);
    if (key->effect == KeyEffect::kNoEffect) idle_.push_back(path);
  }

  void check_auto(const ConfigKey& key) {
    APUS_CHECK(key.takes_auto == KeyAuto::kYes, ConfigError, source_, ": ", key.path,
               " is \"auto\", and nothing else says what it should be: give ", words_for(key.kind));
    if (key.effect == KeyEffect::kNoEffect) idle_.emplace_back(key.path);
  }

  void refuse(const ConfigKey& key, const json& value) {
    const bool is_off =
        value.is_object() && (value.empty() || (value.contains("enabled") && value["enabled"] == false));
    if (is_off) {
      idle_.emplace_back(key.path);
      return;
    }
    const std::string shown = value.is_object() ? "" : " " + dump_json(value);
    throw NotSupported(detail::concat(source_, ": ", key.path, shown, " is not supported: ", key.note));
  }

  bool has_parts(const std::string& path) const {
    return std::ranges::any_of(keys_, [&](const ConfigKey& key) { return key.path.starts_with(path + "."); });
  }

  /// The nearest key of the same section, else the section where a key of this name stands.
  ConfigError unknown(const std::string& path) const {
    const std::string where = path.substr(0, path.size() - last_name(path).size());
    std::vector<std::string> siblings;
    for (const ConfigKey& key : keys_) {
      if (!key.path.starts_with(where)) continue;
      const std::string_view rest = key.path.substr(where.size());
      siblings.emplace_back(rest.substr(0, rest.find('.')));
    }
    std::string hint = did_you_mean(last_name(path), siblings);
    const auto elsewhere =
        std::ranges::find(keys_, last_name(path), [](const ConfigKey& key) { return last_name(key.path); });
    if (elsewhere != keys_.end()) hint = " (did you mean '" + std::string(elsewhere->path) + "'?)";
    return ConfigError(detail::concat(source_, ": nobody knows the key ", path, hint));
  }

  std::span<const ConfigKey> keys_;
  std::string source_;
  std::vector<std::string> idle_;
};

}  // namespace

std::vector<std::string> check_keys(const json& config, std::span<const ConfigKey> keys,
                                    const std::string& source) {
  Walk walk(keys, source);
  walk.section(config, "");
  return std::move(walk).idle();
}

const json* value_at(const json& config, std::string_view path) {
  const json* at = &config;
  while (true) {
    const size_t dot = path.find('.');
    const auto found = at->is_object() ? at->find(std::string(path.substr(0, dot))) : at->end();
    if (!at->is_object() || found == at->end() || found->is_null()) return nullptr;
    at = &*found;
    if (dot == path.npos) return at;
    path.remove_prefix(dot + 1);
  }
}

}  // namespace apus::train
