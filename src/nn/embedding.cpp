#include "apus/nn/embedding.h"

#include <ATen/ops/empty.h>

#include "apus/base/error.h"
#include "apus/ops/cast.h"
#include "apus/ops/projection.h"

namespace apus::nn {
namespace {

at::Tensor unset_table(const VocabOptions& options) {
  APUS_CHECK(options.vocab_size > 0 && options.hidden_size > 0, ConfigError,
             "a vocabulary table needs positive sizes, it has vocab_size ", options.vocab_size,
             " and hidden_size ", options.hidden_size);
  return at::empty({options.vocab_size, options.hidden_size}, options.dtype);
}

}  // namespace

Embedding::Embedding(const VocabOptions& options)
    : weight_VD_(register_parameter("weight", unset_table(options))) {
  allow_copies("weight", weight_VD_);
}

at::Tensor Embedding::forward(const at::Tensor& tokens_T, const PassContext& context) const {
  const at::Tensor copy_VD = active_copy("weight", context);
  const at::Tensor& table_VD = copy_VD.defined() ? copy_VD : weight_VD_;
  // The rows are rounded, not the whole table.
  const auto rows_of = [&](const at::Tensor& tokens) {
    return ops::cast(ops::embedding(tokens, table_VD, context.gradients), weight_VD_.scalar_type());
  };
  if (!boundary_) return rows_of(tokens_T);
  return boundary_->leave(rows_of(boundary_->enter(tokens_T)));
}

VocabHead::VocabHead(const VocabOptions& options)
    : weight_VD_(register_parameter("weight", unset_table(options))) {
  allow_copies("weight", weight_VD_);
}

VocabHead::VocabHead(const Embedding& tied) : weight_VD_(tied.weight()) {
  allow_copies("weight", weight_VD_);
}

}  // namespace apus::nn
