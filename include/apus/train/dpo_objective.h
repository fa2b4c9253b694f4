#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/train/objective.h"

namespace apus::train {

/// How pairs become the step's loss.
enum class DpoReduction {
  kPairs,       ///< mean over all pairs of the step
  kMicrobatch,  ///< mean over micro-batches of their means, as TRL does
};

/// Settings of DPO.
struct APUS_API DpoOptions {
  double beta = 0.1;
  DpoReduction reduction = DpoReduction::kPairs;
  std::vector<std::string> policy_adapters = {"default"};  ///< what is trained
  std::vector<std::string> reference_adapters;             ///< frozen; empty = the base with adapters off
  /// A second, frozen model that serves as reference (full fine-tuning); null: the trained model's own base.
  /// Its active adapters are reference_adapters. Outlives the objective.
  parallel::ShardedModel* reference_model = nullptr;
};

/// Direct preference optimisation, sigmoid loss, reference without tape from the same model or a second one.
///
/// Maths:  margin = (log p(chosen) - log r(chosen)) - (log p(rejected) - log r(rejected)), where log p sums over
///         the completion's tokens; loss = mean over pairs of -log sigmoid(beta * margin).
/// Metrics: rewards/chosen, rewards/rejected, rewards/accuracies, rewards/margins, logps/chosen, logps/rejected.
/// Memory: two forwards' activations do not exist at a time: the reference pass keeps nothing.
/// Source: Rafailov et al. 2023, equation 7; names and conventions of TRL 1.16.
class APUS_API DpoObjective final : public Objective {
 public:
  /// Throws ConfigError if beta is not positive, or no policy adapter is named and there is no reference model.
  explicit DpoObjective(DpoOptions options);

  std::vector<int64_t> weights(const data::Batch& batch) const override;
  ObjectiveResult run(parallel::ShardedModel& model, const data::Batch& batch) const override;
  const std::vector<ObjectiveMetric>& metrics() const override { return metrics_; }
  const DpoOptions& options() const { return options_; }

 private:
  DpoOptions options_;
  std::vector<ObjectiveMetric> metrics_;
};

}  // namespace apus::train
