#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/api.h"

namespace apus::peft {

/// Which projections get an adapter. Exactly one of the three ways is used.
struct APUS_API LoraTargets {
  std::vector<std::string> names;  ///< a module path equal to one, or ending in "." + one
  std::string regex;               ///< the whole module path must match
  bool all_linear = false;         ///< every nn::Linear but lm_head

  /// From the words of a --target_modules flag: {"all-linear"} or module names. Sorted, doubles removed.
  static LoraTargets from_names(std::vector<std::string> names);
};

/// A predicate that tells whether the targets name the module of a dotted path.
///
/// Regular expressions are ECMAScript's without back-references, run by an automaton of polynomial time
/// (they come from untrusted files). Python-only syntax, such as look-behind, is refused.
/// Throws:  ConfigError if nothing is targeted or the regular expression cannot be compiled.
APUS_API std::function<bool(const std::string& path)> target_matcher(const LoraTargets& targets);

/// A LoRA adapter's settings: what PEFT 0.21 keeps in adapter_config.json.
///
/// Only features that are built are fields. A file that switches on any other (use_dora, modules_to_save,
/// bias, rank_pattern, ...) is refused by key. Defaults are ms-swift's.
struct APUS_API LoraConfig {
  int64_t r = 8;
  double lora_alpha = 32;
  double lora_dropout = 0.0;  ///< kept and written back; see require_no_dropout
  bool use_rslora = false;
  LoraTargets targets;
  std::string base_model_name_or_path;
  /// PEFT's keys without effect here, and their JSON values, kept so that a loaded configuration is written
  /// back as it came (revision, megatron_core, ...).
  std::map<std::string, std::string> kept;

  /// alpha / r, or alpha / sqrt(r) with use_rslora.
  double scaling() const;
};

/// A parsed configuration and what is worth telling the user about it.
struct APUS_API ParsedLoraConfig {
  LoraConfig config;
  std::vector<std::string> warnings;  ///< at most one, naming all unknown keys that hold a value
};

/// Parses the text of an adapter_config.json; `file` is for messages.
/// Throws:  DataError with the line if it is not JSON; CheckpointError if it is no object of type LORA, or r,
///          lora_alpha, lora_dropout or target_modules is missing or has a wrong type or value; NotSupported,
///          naming the key, for a feature that is not built.
APUS_API ParsedLoraConfig parse_lora_config(std::string_view text, const std::string& file);

/// The text of an adapter_config.json with every key that PEFT 0.21 writes, sorted. Write the configuration
/// of a LoraSummary: there "all-linear" is already the list that PEFT makes of it.
APUS_API std::string write_lora_config(const LoraConfig& config);

/// Refuses an adapter with lora_dropout > 0. Whoever trains with dropout on calls it (SFT); DPO disables
/// dropout by default and must not.
/// Throws:  NotSupported naming lora_dropout.
APUS_API void require_no_dropout(const LoraConfig& config);

}  // namespace apus::peft
