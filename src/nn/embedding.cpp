#include "apus/nn/embedding.h"

#include <ATen/ops/empty.h>

#include "apus/base/error.h"
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
    : weight_VD_(register_parameter("weight", unset_table(options))) {}

at::Tensor Embedding::forward(const at::Tensor& tokens_T) const {
  if (!boundary_) return ops::embedding(tokens_T, weight_VD_);
  return boundary_->leave(ops::embedding(boundary_->enter(tokens_T), weight_VD_));
}

VocabHead::VocabHead(const VocabOptions& options)
    : weight_VD_(register_parameter("weight", unset_table(options))) {}

}  // namespace apus::nn
