#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "apus/base/api.h"

namespace apus::cli {

/// What a flag's words mean.
enum class FlagKind {
  kText,
  kInteger,
  kNumber,
  kBoolean,
  /// Words, parted by commas or spaces.
  kList,
  /// The same for names of files, which may hold spaces: parted by commas and by the shell.
  kPaths,
};

/// What giving a flag does.
enum class FlagStatus {
  /// It is obeyed.
  kActs,
  /// It exists for Python's sake: accepted, and said once to have no effect.
  kNoEffect,
  /// Its mechanism is not built yet: refused unless the value says what happens anyway.
  kNotYet,
};

/// One flag of the command line, under the name that ms-swift, transformers or DeepSpeed users know.
struct APUS_API Flag {
  std::string name = {};
  std::vector<std::string> aliases = {};
  FlagKind kind = FlagKind::kText;
  FlagStatus status = FlagStatus::kActs;
  /// The default, as the help shows it.
  std::string default_text = {};
  /// One line for the help.
  std::string help = {};
  /// kActs: the words that are taken, if not empty. kNotYet: words that mean the same as the default.
  std::vector<std::string> words = {};
  /// Heading in the help.
  std::string group = {};
  /// Tasks that have a use for it ("dpo", "sft", "pt"); empty: all.
  std::vector<std::string> tasks = {};
  /// The only --train_type that has a use for it; empty: both.
  std::string train_type = {};

  /// Whether a task has a use for it; an unknown task ("") has one for every flag.
  bool serves(std::string_view task) const;
};

/// All flags of one command. The only list of them: parsing, help and checks follow it.
class APUS_API FlagTable final {
 public:
  /// Throws:      Error if a name or alias stands twice.
  explicit FlagTable(std::vector<Flag> flags);

  /// The flag of this name or alias; '-' counts as '_'. Null if there is none.
  const Flag* find(std::string_view name) const;
  /// In the order of the help.
  const std::vector<Flag>& flags() const { return flags_; }
  /// All names and aliases, for suggestions.
  std::vector<std::string> names() const;

 private:
  std::vector<Flag> flags_;
  std::unordered_map<std::string, size_t> by_name_;
};

/// The flags of all training commands: what `apus train`, `apus data` and `apus plan` take.
APUS_API FlagTable training_flags();

/// Those that one task ("dpo", "sft", "pt") has a use for: what the help of its command lists.
APUS_API FlagTable training_flags(std::string_view task);

/// The flags of `apus infer`.
APUS_API FlagTable infer_flags();

/// The flags of `apus launch`, before its `--`.
APUS_API FlagTable launch_flags();

/// The help of a command: usage, then every flag with its default, by group. Flags that are not built yet say
/// so.
APUS_API std::string help_text(std::string_view command, std::string_view summary, const FlagTable& table);

}  // namespace apus::cli
