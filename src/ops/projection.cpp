#include "apus/ops/projection.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>

#include <tuple>

#include "apus/base/error.h"
#include "ops/embedding_cuda.h"
#include "ops/kernel_rows.h"

namespace apus::ops {

at::Tensor embedding(const at::Tensor& tokens_T, const at::Tensor& weight_VD, memory::GradSink* gradients) {
  APUS_CHECK(tokens_T.dim() == 1 && tokens_T.scalar_type() == at::kLong, ShapeError,
             "embedding: tokens must be int64 [T], they are ", tokens_T.scalar_type(), " ", tokens_T.sizes());
  APUS_CHECK(weight_VD.dim() == 2, ShapeError, "embedding: the weight must be [V, D], it is ",
             weight_VD.sizes());
  if (tokens_T.is_cpu() && tokens_T.numel() > 0) {
    const auto [least, most] = at::aminmax(tokens_T);
    const int64_t low = least.item<int64_t>(), high = most.item<int64_t>();
    APUS_CHECK(low >= 0 && high < weight_VD.size(0), ShapeError, "embedding: token ", low < 0 ? low : high,
               " is outside the vocabulary of ", weight_VD.size(0),
               " rows; does the tokenizer belong to this model?");
  }
  if (tokens_T.is_cuda() && takes_rows(weight_VD)) return cuda::embedding(tokens_T, weight_VD, gradients);
  return at::embedding(weight_VD, tokens_T);
}

at::Tensor linear(const at::Tensor& x_TI, const at::Tensor& weight_OI, const at::Tensor& bias_O) {
  APUS_CHECK(weight_OI.dim() == 2 && x_TI.dim() >= 1 && x_TI.size(-1) == weight_OI.size(1), ShapeError,
             "linear: x is ", x_TI.sizes(), " but the weight is ", weight_OI.sizes(),
             " [out, in]; the last dim of x must be in");
  APUS_CHECK(x_TI.scalar_type() == weight_OI.scalar_type(), ShapeError, "linear: x is ", x_TI.scalar_type(),
             " but the weight is ", weight_OI.scalar_type());
  APUS_CHECK(!bias_O.defined() || (bias_O.dim() == 1 && bias_O.size(0) == weight_OI.size(0)), ShapeError,
             "linear: the bias is ", bias_O.sizes(), " but the weight is ", weight_OI.sizes(), " [out, in]");
  return at::linear(x_TI, weight_OI, bias_O);
}

}  // namespace apus::ops
