#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/nn/causal_lm.h"
#include "apus/peft/lora_config.h"

namespace apus::peft {

/// How a new adapter's numbers are made.
struct APUS_API LoraInit {
  uint64_t seed = 42;
  at::ScalarType dtype = at::kFloat;  ///< of A, B and copies
};

/// What an adapter hit.
struct APUS_API LoraSummary {
  std::string name;
  LoraConfig config;                 ///< targets resolved: a sorted list of names, or the regular expression
  std::vector<std::string> modules;  ///< paths of the adapted projections, in model order
  /// Base parameters that have a trained copy in the adapter (bias, modules_to_save), in model order.
  std::vector<std::string> copies;
  int64_t parameters = 0;  ///< elements of all A, B and copies
};

/// Adds a new trainable adapter in place to every nn::Linear that the configuration targets, and the copies
/// that bias and modules_to_save ask for.
///
/// Maths:       A ~ U(-1/sqrt(in), 1/sqrt(in)) (PEFT's kaiming_uniform with a = sqrt(5)), B = 0; copies start
/// as
///              the base's values: the adapted model starts as the base.
/// Determinism: bitwise: Philox keyed by (seed, full parameter name), counter = the element's index in the
///              whole tensor, so neither order, world nor sharding matters.
/// Throws:      ConfigError if a target or a module to save matches nothing (naming the nearest ones), a
/// module is
///              both, the name is in use or holds a dot; NotSupported for another initialisation. The model
///              is untouched if it throws.
APUS_API LoraSummary apply_lora(nn::CausalLm& model, const LoraConfig& config, const std::string& name,
                                const LoraInit& init);

/// All tensors of one adapter under full names, in model order; empty if none: A and B
/// ("<path>.lora_A.<name>.weight"), behind them copies ("<path>.base_layer.<name>.bias",
/// "<path>.modules_to_save.<name>.weight").
APUS_API std::vector<nn::NamedParameter> adapter_parameters(nn::CausalLm& model, const std::string& name);

/// Adds adapter `to`, a frozen copy of all of `from` with its dtypes and scalings (a DPO reference; no
/// dropout). Throws:  ConfigError if there is no `from`, or `to` exists.
APUS_API void copy_adapter(nn::CausalLm& model, const std::string& from, const std::string& to);

/// Takes an adapter off every module; does nothing where it is absent.
APUS_API void remove_adapter(nn::CausalLm& model, const std::string& name);

}  // namespace apus::peft
