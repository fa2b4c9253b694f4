#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/train/objective.h"

namespace apus::train {

/// What SftObjective trains and shows.
struct APUS_API SftObjectiveOptions {
  /// The active adapters; empty trains (or evaluates) the base itself.
  std::vector<std::string> adapters = {};
  /// Channels (data::Batch::channels) whose losses are shown by themselves, each once; others are not.
  std::vector<std::string> channels = {};
  /// Seed of the adapters' dropout in passes with tape; none: nothing is dropped.
  std::optional<uint64_t> dropout_seed = {};
};

/// Cross-entropy over supervised tokens.
///
/// Maths:   loss = -(sum over supervised tokens of weight x log p(token)) / (number of those of non-zero
/// weight
///          in the whole step); weights are 1 unless the batch has others (loss_scale).
/// Metrics: token_acc, the share of the tokens of non-zero weight that are the most probable one (among
/// equally
///          probable ones the smallest id); loss_<channel> for each channel, by the formula of the loss over
///          the channel's tokens alone, so that the loss is the mean of these weighted by their tokens.
/// Memory:  token_acc reads the chunks of logits that the loss makes; 1 byte a supervised token.
/// Throws:  from run ConfigError if there is dropout and a batch with tape has no places (data::Loader fills
/// them). Source:  numbers.md point 1; transformers' num_items_in_batch; ms-swift's token_acc and channel
/// loss.
class APUS_API SftObjective final : public Objective {
 public:
  /// Throws:  ConfigError if a channel is named twice, or is empty.
  explicit SftObjective(SftObjectiveOptions options = {});

  std::vector<int64_t> weights(const data::Batch& batch) const override;
  ObjectiveResult run(parallel::ShardedModel& model, const data::Batch& batch) const override;
  ObjectiveResult run_in_step(parallel::ShardedModel& model, const data::Batch& batch,
                              const std::vector<double>& divisors) const override;
  const std::vector<ObjectiveMetric>& metrics() const override { return metrics_; }
  const SftObjectiveOptions& options() const { return options_; }

 private:
  ObjectiveResult run_scaled(parallel::ShardedModel& model, const data::Batch& batch,
                             std::optional<double> divisor) const;
  nn::PassContext context_of(const data::Batch& batch) const;
  std::vector<int64_t> channels_of(const data::Batch& batch) const;
  at::Tensor channel_sums(const data::Batch& batch, const at::Tensor& losses_M) const;

  SftObjectiveOptions options_;
  std::vector<ObjectiveMetric> metrics_;
};

}  // namespace apus::train
