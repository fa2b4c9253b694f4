#include "apus/train/objective.h"

#include <ATen/ops/index_add.h>
#include <ATen/ops/zeros.h>

namespace apus::train {

Objective::~Objective() = default;

ObjectiveMemory::~ObjectiveMemory() = default;

at::Tensor target_log_probs(parallel::ShardedModel& model, const data::Batch& batch,
                            const std::vector<std::string>& adapters) {
  nn::PassContext context{.rows = batch.layout, .adapters = adapters};
  const at::Tensor hidden_TD = model.forward(batch.tokens_T, context);
  const at::Tensor hidden_MD = hidden_TD.index_select(0, batch.target_rows_M);
  return model.token_log_probs(hidden_MD, batch.targets_M, context);
}

at::Tensor sequence_log_probs(parallel::ShardedModel& model, const data::Batch& batch,
                              const std::vector<std::string>& adapters) {
  const at::Tensor log_probs_M = target_log_probs(model, batch, adapters);
  const at::Tensor sums = at::zeros({batch.layout->batch()}, log_probs_M.options().requires_grad(false));
  return at::index_add(sums, 0, batch.target_sequences_M, log_probs_M);
}

}  // namespace apus::train
