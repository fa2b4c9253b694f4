#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/nn/causal_lm.h"

namespace apus::peft {

/// Which parameters are trained: ms-swift's flags of the same names. Freezing comes first, in this order;
/// what trainable_* names is trained whatever froze it.
struct APUS_API FreezeOptions {
  /// The share of the model's elements that is frozen from the bottom, in [0, 1]: parameters in the order of
  /// named_parameters() as long as their running sum stays within it. A tied weight counts once.
  double freeze_parameters_ratio = 0.0;
  /// Names that begin with one of these are frozen.
  std::vector<std::string> freeze_parameters;
  /// Names in which it is found are frozen.
  std::string freeze_parameters_regex;
  /// Names that begin with one of these are trained.
  std::vector<std::string> trainable_parameters;
  /// Names in which it is found are trained.
  std::string trainable_parameters_regex;

  /// Whether anything is asked for.
  bool any() const;
};

/// What is trained afterwards.
struct APUS_API FreezeReport {
  std::vector<std::string> trainable;  ///< names, in the model's order
  int64_t trainable_elements = 0;
  int64_t frozen_elements = 0;
};

/// Freezes and unfreezes parameters of a model before it is sharded: by requires_grad, on parameters that are
/// trainable already (make_trainable, or an adapter).
///
/// A model with adapters: all of this acts on the adapters' parameters alone, whose names begin with their
/// modules' ("model.layers.0." freezes A and B of layer 0). The base stays frozen; to train a part of it
/// whole, use modules_to_save (ms-swift takes these flags for full training only). Regular expressions are
/// ECMAScript's, searched anywhere in the name, in polynomial time. Throws:  ConfigError, before anything
/// changes, for a prefix or expression that fits no name (with the nearest
///          one), a ratio outside [0, 1], an expression that cannot be compiled, base parameters of a model
///          with adapters in trainable_*, or if nothing would be trained.
/// Source:  ms-swift 3, swift/llm/train/tuner.py (behaviour).
APUS_API FreezeReport freeze_parameters(nn::CausalLm& model, const FreezeOptions& options);

}  // namespace apus::peft
