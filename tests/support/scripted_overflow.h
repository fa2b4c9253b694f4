#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "apus/train/sft_objective.h"

namespace apus::testing {

/// SFT whose gradients overflow in some micro-batches, counted from 0; the loss stays what it is.
class ScriptedOverflow final : public train::Objective {
 public:
  explicit ScriptedOverflow(std::set<int64_t> calls) : calls_(std::move(calls)) {}

  std::vector<int64_t> weights(const data::Batch& batch) const override { return sft_.weights(batch); }
  train::ObjectiveResult run(parallel::ShardedModel& model, const data::Batch& batch) const override {
    train::ObjectiveResult result = sft_.run(model, batch);
    const at::Tensor& loss = result.loss_sums[0];
    if (calls_.contains(calls_made_++)) result.loss_sums[0] = loss.add(loss.sub(loss.detach()).sqrt());
    return result;
  }
  const std::vector<train::ObjectiveMetric>& metrics() const override { return sft_.metrics(); }

 private:
  train::SftObjective sft_;
  std::set<int64_t> calls_;
  mutable int64_t calls_made_ = 0;
};

}  // namespace apus::testing
