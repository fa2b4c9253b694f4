#include "apus/train/objective.h"

#include "apus/ops/segment_sum.h"
#include "train/on_device.h"

namespace apus::train {

Objective::~Objective() = default;

ObjectiveMemory::~ObjectiveMemory() = default;

ObjectiveResult Objective::run_in_step(parallel::ShardedModel& model, const data::Batch& batch,
                                       const std::vector<double>& /*divisors*/) const {
  return run(model, batch);
}

at::Tensor target_log_probs(parallel::ShardedModel& model, const data::Batch& batch,
                            const std::vector<std::string>& adapters) {
  const data::Batch placed = on_device(model, batch);
  nn::PassContext context{.rows = batch.layout, .adapters = adapters};
  const at::Tensor hidden_MD = model.forward_read(placed.tokens_T, read_rows(placed, context), context);
  return model.token_log_probs(hidden_MD, placed.targets_M, context);
}

at::Tensor sequence_log_probs(parallel::ShardedModel& model, const data::Batch& batch,
                              const std::vector<std::string>& adapters) {
  const data::Batch placed = on_device(model, batch);
  const at::Tensor log_probs_M = target_log_probs(model, placed, adapters);
  return ops::segment_sum(log_probs_M, placed.target_sequences_M, batch.layout->batch());
}

}  // namespace apus::train
