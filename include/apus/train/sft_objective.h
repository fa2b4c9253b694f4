#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/train/objective.h"

namespace apus::train {

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

}  // namespace apus::train
