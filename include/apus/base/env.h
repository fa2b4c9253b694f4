#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "apus/base/api.h"

namespace apus {

/// A snapshot of environment variables, passed as an argument so that tests and embedding hosts decide
/// what the library sees. Nothing else in apus reads the process environment.
class APUS_API Environment final {
 public:
  /// Name to value.
  using Map = std::map<std::string, std::string, std::less<>>;

  /// Empty.
  Environment() = default;
  /// `Environment({{"A", "1"}, {"B", "2"}})`; a single variable needs `Environment(Environment::Map{{"A",
  /// "1"}})`.
  explicit Environment(Map variables);

  /// The variables of this process at the moment of the call.
  static Environment from_process();

  /// Whether the variable is set, even if to nothing.
  bool has(std::string_view name) const;
  /// The value; nothing if unset.
  std::optional<std::string> get(std::string_view name) const;
  /// The value, or `fallback` if unset; an empty value counts as set.
  std::string get_or(std::string_view name, std::string_view fallback) const;

  /// The value as an integer; nothing if unset or empty.
  /// Throws:      ConfigError naming the variable and its value.
  std::optional<int64_t> get_int(std::string_view name) const;
  /// The value as a boolean (true/false/1/0/yes/no); nothing if unset or empty.
  /// Throws:      ConfigError naming the variable and its value.
  std::optional<bool> get_bool(std::string_view name) const;

  /// Sets or replaces a variable of this snapshot; the process does not change.
  void set(std::string_view name, std::string_view value);
  /// Removes a variable of this snapshot, if it is there.
  void unset(std::string_view name);
  /// All of them, for starting a child process.
  const Map& variables() const { return variables_; }

 private:
  Map variables_;
};

/// The folder in which apus keeps what it can make again: APUS_CACHE_DIR, else XDG_CACHE_HOME/apus, else
/// HOME/.cache/apus. A variable that is empty counts as unset, as does an XDG_CACHE_HOME that is no absolute
/// path. None where nothing is set. The folder need not exist.
APUS_API std::optional<std::filesystem::path> cache_directory(const Environment& environment);

}  // namespace apus
