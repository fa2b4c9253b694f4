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

/// What narrows the targets down: PEFT's exclude_modules, layers_to_transform and layers_pattern.
struct APUS_API LoraScope {
  std::vector<std::string> exclude_names;  ///< left out: a path equal to one, or ending in "." + one
  std::string exclude_regex;               ///< left out: the whole path matches; instead of names
  /// Only these layers; empty = all. With target names only, and a whole path among them stays a target in
  /// any layer.
  std::vector<int64_t> layers;
  /// What stands before a layer's index ("layers"); empty = any component.
  std::vector<std::string> layers_pattern;

  /// Whether it leaves all targets as they are.
  bool is_open() const;
};

/// Which biases an adapter trains with it.
enum class LoraBias {
  kNone,
  kAll,       ///< every bias of the model
  kLoraOnly,  ///< those of the projections that have LoRA
};

/// "none", "all", "lora_only": PEFT's word.
APUS_API std::string_view lora_bias_name(LoraBias bias);

/// The bias mode of a word. Throws: ConfigError, naming the three words, for another.
APUS_API LoraBias parse_lora_bias(std::string_view word);

/// A LoRA adapter's settings: what PEFT 0.21 keeps in adapter_config.json.
///
/// Only features that are built are fields. A file that switches on any other (use_dora, target_parameters,
/// ...) is refused by key. Defaults are ms-swift's.
struct APUS_API LoraConfig {
  int64_t r = 8;
  double lora_alpha = 32;
  double lora_dropout = 0.0;  ///< in passes with PassContext::dropout, on the way into A
  bool use_rslora = false;
  LoraTargets targets;
  /// Other ranks and alphas: a module whose path's end matches the key, a regular expression, as
  /// "(.*\.)?(key)". The first key that matches counts, in order of the keys, in which PEFT's files have
  /// them.
  std::map<std::string, int64_t> rank_pattern;
  std::map<std::string, double> alpha_pattern;  ///< as rank_pattern
  LoraBias bias = LoraBias::kNone;
  /// Modules that are trained whole, as copies: those whose path ends in one of these texts (PEFT's rule:
  /// "norm" names every norm), with all that lies below them.
  std::vector<std::string> modules_to_save;
  LoraScope scope;
  std::string base_model_name_or_path;
  /// PEFT's keys without effect here, and their JSON values, kept so that a loaded configuration is written
  /// back as it came (revision, megatron_core, ...).
  std::map<std::string, std::string> kept;

  /// alpha / r, or alpha / sqrt(r) with use_rslora: of modules that no pattern names.
  double scaling() const;
};

/// Rank and alpha of one module.
struct APUS_API LoraSize {
  int64_t r = 8;
  double alpha = 32;
  /// alpha / r, or alpha / sqrt(r) with use_rslora: of the module's own r and alpha.
  double scaling = 4;
};

/// A function from a module's path to its size, by rank_pattern and alpha_pattern.
/// Throws:  ConfigError, naming the pattern, for a rank below 1 or a key that is no regular expression.
APUS_API std::function<LoraSize(const std::string& path)> lora_sizes(const LoraConfig& config);

/// Whether LoRA goes on the module of a path: its targets within its scope, without what modules_to_save
/// names. Throws:  as target_matcher of targets; ConfigError if layers are given with anything but target
/// names.
APUS_API std::function<bool(const std::string& path)> lora_matcher(const LoraConfig& config);

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

}  // namespace apus::peft
