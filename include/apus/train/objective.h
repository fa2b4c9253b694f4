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
  /// fp64 [metrics], without tape, in the order of Objective::metrics(): sums that the step divides by each
  /// one's divisor. On any device: nothing is read from it before the step's end. Undefined counts as zeros.
  at::Tensor metric_sums;
};

/// One figure beside the loss.
struct APUS_API ObjectiveMetric {
  /// As log lines show it, e.g. "rewards/accuracies".
  std::string name;
  /// Which of Objective::weights() its mean divides by.
  size_t divisor = 0;
};

/// What an objective carries from step to step. Part of a checkpoint, and equal on all ranks: it changes by
/// what all ranks know alone.
class APUS_API ObjectiveMemory {
 public:
  virtual ~ObjectiveMemory();

  /// Told after each training step: the step's divisors (Objective::weights() over all ranks) and the means
  /// of Objective::metrics(). Evaluations are not told.
  virtual void finish_step(const std::vector<int64_t>& divisors, const std::vector<double>& metrics) = 0;
  /// Everything there is to remember.
  virtual std::vector<double> save() const = 0;
  /// Goes on from there. Throws ConfigError if it is not of this kind.
  virtual void load(const std::vector<double>& saved) = 0;
};

/// A training goal: maps a micro-batch and a model to sums and to what they are divided by.
///
/// The step's loss is (sum of loss_sums[d]) / (sum of weights[d]), added over the divisors d, where sums go
/// over all micro-batches on all ranks: one division a step and divisor, so the loss does not depend on how
/// rows are split. Metrics are treated alike.
class APUS_API Objective {
 public:
  virtual ~Objective();

  /// This micro-batch's part of each divisor (tokens, pairs, ...); reads Batch::on_host() alone, known before
  /// any forward, zeros if the batch is empty, equally many for every batch, at least one.
  virtual std::vector<int64_t> weights(const data::Batch& batch) const = 0;

  /// Runs the model, where it is: a batch that is on the CPU is copied there. Under no-grad the loss carries
  /// no tape (evaluation). With a model on a GPU the host does not wait for it, but where the objective's own
  /// header says so.
  virtual ObjectiveResult run(parallel::ShardedModel& model, const data::Batch& batch) const = 0;

  /// run() within a training step whose divisors (weights() over all ranks, at least 1) are known. The caller
  /// divides each loss sum by its divisor, adds these up and back-propagates that, nothing else: an objective
  /// may make gradients ahead by it. By default run().
  virtual ObjectiveResult run_in_step(parallel::ShardedModel& model, const data::Batch& batch,
                                      const std::vector<double>& divisors) const;

  /// What run() measures beside the loss.
  virtual const std::vector<ObjectiveMetric>& metrics() const = 0;

  /// Null: steps do not depend on earlier ones but through the weights.
  virtual ObjectiveMemory* memory() const { return nullptr; }
};

/// Log-probabilities fp32 [M] of the batch's supervised tokens under the active adapters.
APUS_API at::Tensor target_log_probs(parallel::ShardedModel& model, const data::Batch& batch,
                                     const std::vector<std::string>& adapters);

/// Log-probability fp32 [sequences] of each sequence's supervised tokens under the active adapters.
APUS_API at::Tensor sequence_log_probs(parallel::ShardedModel& model, const data::Batch& batch,
                                       const std::vector<std::string>& adapters);

}  // namespace apus::train
