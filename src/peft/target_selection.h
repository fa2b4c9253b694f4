#pragma once

#include <string>
#include <vector>

#include "apus/nn/causal_lm.h"
#include "apus/nn/linear.h"
#include "apus/peft/lora_config.h"

namespace apus::peft::detail {

/// A projection and its path in the model.
struct Projection {
  std::string path;
  nn::Linear* linear = nullptr;
};

/// Every nn::Linear of the model, in its order.
std::vector<Projection> projections_of(nn::CausalLm& model);

/// What the targets of a configuration hit.
struct Selection {
  std::vector<Projection> targets;     ///< never empty
  std::vector<std::string> unmatched;  ///< messages on names that match nothing, with the nearest
};

/// Throws ConfigError if nothing matches, or a module that is no projection does; NotSupported for lm_head
/// and embeddings.
Selection select_targets(nn::CausalLm& model, const LoraTargets& targets);

/// "all-linear" as the sorted list that PEFT would write; anything else as it is.
LoraTargets resolve_targets(nn::CausalLm& model, const LoraTargets& targets);

/// Throws ConfigError if the name cannot be an adapter's or is in use on one of the projections.
void check_new_name(const std::vector<Projection>& projections, const std::string& name);

/// "<path>.lora_A.<name>.weight" and "<path>.lora_B.<name>.weight".
std::string name_of_a(const std::string& path, const std::string& name);
std::string name_of_b(const std::string& path, const std::string& name);

}  // namespace apus::peft::detail
