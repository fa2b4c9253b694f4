#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/api.h"
#include "apus/cli/flag_table.h"

namespace apus::cli {

/// What was given for one flag.
struct APUS_API FlagValue {
  /// How messages name it: "--lora_rank", or "lora_rank in job.json".
  std::string shown = {};
  /// Its words, as the shell or the file parted them.
  std::vector<std::string> words = {};

  /// The words joined by spaces.
  std::string text() const;
  /// Throws:      ConfigError naming the flag and the value, like the next two.
  int64_t integer() const;
  /// A finite number.
  double number() const;
  /// true/false/1/0/yes/no in any case.
  bool boolean() const;
  /// Words parted at commas too, and at white space within a word unless they are `paths`.
  std::vector<std::string> list(FlagKind kind = FlagKind::kList) const;
};

/// The flags that were given, under their first names. Nothing stands here for a flag that keeps its default.
class APUS_API FlagValues final {
 public:
  /// Null if the flag was not given.
  const FlagValue* find(std::string_view name) const;
  /// Whether it was given.
  bool has(std::string_view name) const { return find(name) != nullptr; }
  /// Notes a value. Throws ConfigError if the flag has one already.
  void add(const std::string& name, FlagValue value);
  /// By name.
  const std::map<std::string, FlagValue, std::less<>>& all() const { return values_; }

 private:
  std::map<std::string, FlagValue, std::less<>> values_;
};

/// Reads `--k v`, `--k=v`, `--k a b c` for lists and a bare `--k` for booleans and flags without effect, then
/// the file of `--config` for what was not given. Every value is checked against its flag's kind and words.
/// Throws: ConfigError: an unknown flag (naming the nearest), a value that is missing, of the wrong kind or
///              not among the flag's words, a flag given twice, a word that belongs to no flag;
///              NotSupported for a value that asks for what is not built yet; DataError, FileError for the
///              file.
APUS_API FlagValues parse_flags(const std::vector<std::string>& arguments, const FlagTable& table);

/// Whether the value is the word by which the table names what happens without one ("none", "auto"). A number
/// or a boolean is never: it says the same as the default, but is given all the same.
APUS_API bool says_default(const Flag& flag, const FlagValue& value);

/// Whether the value is what happens without the flag, by the table's own words.
APUS_API bool same_as_default(const Flag& flag, const FlagValue& value);

/// The one line that names the given flags without effect; empty if there are none.
APUS_API std::string no_effect_line(const FlagValues& values, const FlagTable& table);

}  // namespace apus::cli
