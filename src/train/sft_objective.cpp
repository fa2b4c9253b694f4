#include "apus/train/sft_objective.h"

#include <ATen/ops/count_nonzero.h>

#include <utility>

namespace apus::train {

SftObjective::SftObjective(std::vector<std::string> adapters) : adapters_(std::move(adapters)) {}

std::vector<int64_t> SftObjective::weights(const data::Batch& batch) const {
  if (batch.is_empty()) return {0};
  if (!batch.target_weights_M.defined()) return {batch.target_count()};
  return {batch.target_weights_M.count_nonzero().item<int64_t>()};
}

ObjectiveResult SftObjective::run(parallel::ShardedModel& model, const data::Batch& batch) const {
  const at::Tensor log_probs_M = target_log_probs(model, batch, adapters_);
  if (!batch.target_weights_M.defined()) return {{log_probs_M.sum().neg()}, {}};
  return {{log_probs_M.mul(batch.target_weights_M.to(log_probs_M.device())).sum().neg()}, {}};
}

}  // namespace apus::train
