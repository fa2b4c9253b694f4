#include "apus/train/answer_log_probs.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "apus/memory/staged_copy.h"
#include "apus/nn/dropout_rows.h"
#include "apus/ops/segment_sum.h"
#include "train/on_device.h"

namespace apus::train {
namespace {

/// Adds each token's value to its answer.
at::Tensor sums_of(const data::Batch& batch, const at::Tensor& values_M) {
  return ops::segment_sum(values_M, batch.target_sequences_M, std::max<int64_t>(2 * batch.pairs, 2));
}

}  // namespace

AnswerLogProbs answer_log_probs(parallel::ShardedModel& model, const data::Batch& batch,
                                const AnswerPass& pass) {
  nn::PassContext context{.rows = batch.layout, .adapters = pass.adapters};
  if (pass.dropout_seed) {
    context.dropout = nn::dropout_rows(
        *batch.layout, {.seed = *pass.dropout_seed, .epoch = batch.epoch, .places = batch.places});
  }
  const data::Batch placed = on_device(model, batch);
  const at::Tensor hidden_MD = model.forward_read(placed.tokens_T, read_rows(placed, context), context);
  const at::Tensor log_probs_M = model.token_log_probs(hidden_MD, placed.targets_M, context);
  const at::Tensor plain = sums_of(placed, log_probs_M);
  if (!pass.token_weights_M.defined()) return {plain, plain};
  const at::Tensor weights_M = memory::staged_to(pass.token_weights_M, log_probs_M.device(), at::kFloat);
  return {sums_of(placed, log_probs_M.mul(weights_M)), plain};
}

at::Tensor answer_tokens(const data::Batch& batch) {
  const at::Tensor ones = at::zeros({batch.target_count()}, at::kFloat).fill_(1.0);
  return sums_of(batch.on_host(), ones);
}

at::Tensor length_weights(const data::Batch& batch, double ld_alpha) {
  const at::Tensor tokens = answer_tokens(batch);
  const float* const counts = tokens.const_data_ptr<float>();
  const int64_t pairs = std::max<int64_t>(batch.pairs, 1);
  std::vector<int64_t> seen(static_cast<size_t>(2 * pairs), 0);
  const at::Tensor weights = at::empty({batch.target_count()}, at::kFloat);
  float* const values = weights.mutable_data_ptr<float>();
  const int64_t* const answers = batch.on_host().target_sequences_M.const_data_ptr<int64_t>();
  for (int64_t target = 0; target < batch.target_count(); ++target) {
    const int64_t pair = answers[target] % pairs;
    const auto shared = static_cast<int64_t>(std::min(counts[pair], counts[pairs + pair]));
    const int64_t place = seen[static_cast<size_t>(answers[target])]++;
    values[target] = place < shared ? 1.0F : static_cast<float>(ld_alpha);
  }
  return weights;
}

}  // namespace apus::train
