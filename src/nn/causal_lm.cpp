#include "apus/nn/causal_lm.h"

#include "apus/base/error.h"
#include "apus/ops/projection.h"
#include "apus/ops/select_rows.h"

namespace apus::nn {

at::Tensor Block::forward_read(const at::Tensor& hidden_TD, const ReadRows& read,
                               const PassContext& context) {
  return ops::select_rows(forward(hidden_TD, context), read.rows_M);
}

void Block::place(const PlaceOptions& options) {
  place_frozen(named_parameters(), options);
}

void CausalLm::place(const PlaceOptions& options) {
  for (Block* block : blocks()) block->place(options);
  place_frozen(named_parameters(), options);
}

at::Tensor CausalLm::logits(const at::Tensor& tokens_T, PassContext context) {
  APUS_CHECK(context.rows && tokens_T.dim() == 1 && tokens_T.size(0) == context.rows->rows(), ShapeError,
             "logits: tokens are ", tokens_T.sizes(), " but the layout has ",
             context.rows ? context.rows->rows() : -1, " rows");
  prepare(context);
  at::Tensor hidden_TD = embed(tokens_T, context);
  for (Block* block : blocks()) hidden_TD = block->forward(hidden_TD, context);
  return ops::linear(final_norm(hidden_TD, context), head_weight(context));
}

}  // namespace apus::nn
