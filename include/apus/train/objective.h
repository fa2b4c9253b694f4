#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/data/batch.h"
#include "apus/parallel/sharded_model.h"

namespace apus::train {

/// What one micro-batch gives.
struct APUS_API ObjectiveResult {
  /// fp32 scalars with tape, one a divisor in the order of Objective::weights(): the step divides each by its
  /// divisor and adds them up. Undefined where a divisor serves metrics alone; one at least is defined.
  std::vector<at::Tensor> loss_sums;
  /// In the order of Objective::metrics(): sums that the step divides by each one's divisor.
  std::vector<double> metric_sums;
};

/// One figure beside the loss.
struct APUS_API ObjectiveMetric {
  /// As log lines show it, e.g. "rewards/accuracies".
  std::string name;
  /// Which of Objective::weights() its mean divides by.
  size_t divisor = 0;
};

/// A training goal: maps a micro-batch and a model to sums and to what they are divided by.
///
/// The step's loss is (sum of loss_sums[d]) / (sum of weights[d]), added over the divisors d, where sums go over
/// all micro-batches on all ranks: one division a step and divisor, so the loss does not depend on how rows are
/// split. Metrics are treated alike.
class APUS_API Objective {
 public:
  virtual ~Objective();

  /// This micro-batch's part of each divisor (tokens, pairs, ...); known before any forward, zeros if the batch
  /// is empty, equally many for every batch, at least one.
  virtual std::vector<int64_t> weights(const data::Batch& batch) const = 0;

  /// Runs the model. Under no-grad the loss carries no tape (evaluation).
  virtual ObjectiveResult run(parallel::ShardedModel& model, const data::Batch& batch) const = 0;

  /// What run() measures beside the loss.
  virtual const std::vector<ObjectiveMetric>& metrics() const = 0;
};

/// Cross-entropy over supervised tokens.
///
/// Maths:  loss = -(sum over supervised tokens of weight x log p(token)) / (number of those of non-zero weight
///         in the whole step); weights are 1 unless the batch has others (loss_scale).
/// Source: numbers.md point 1; transformers' num_items_in_batch.
class APUS_API SftObjective final : public Objective {
 public:
  /// `adapters`: the active ones; empty trains (or evaluates) the base itself.
  explicit SftObjective(std::vector<std::string> adapters = {});

  std::vector<int64_t> weights(const data::Batch& batch) const override;
  ObjectiveResult run(parallel::ShardedModel& model, const data::Batch& batch) const override;
  const std::vector<ObjectiveMetric>& metrics() const override { return metrics_; }

 private:
  std::vector<std::string> adapters_;
  std::vector<ObjectiveMetric> metrics_;
};

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

/// Log-probability fp32 [sequences] of each sequence's supervised tokens under the active adapters.
APUS_API at::Tensor sequence_log_probs(parallel::ShardedModel& model, const data::Batch& batch,
                                       const std::vector<std::string>& adapters);

}  // namespace apus::train
