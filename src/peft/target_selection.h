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
Selection select_targets(nn::CausalLm& model, const LoraConfig& config);

/// "all-linear" as the sorted list that PEFT would write; anything else as it is.
LoraTargets resolve_targets(nn::CausalLm& model, const LoraConfig& config);

/// The last components of paths, sorted, each once.
std::vector<std::string> last_parts(const std::vector<std::string>& paths);

}  // namespace apus::peft::detail
