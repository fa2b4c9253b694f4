#include "apus/base/error.h"
#include "ops/rotary_cuda.h"

namespace apus::ops::cuda {
namespace {

[[noreturn]] void refuse() {
  throw NotSupported("rotary on a GPU: this apus was built without CUDA; configure with -DAPUS_CUDA=ON");
}

}  // namespace

bool takes_heads(const at::Tensor& /*x*/, int64_t /*head_dim*/, bool /*normed*/) {
  return false;
}

Rotated rotary(const at::Tensor& /*q_TNH*/, const at::Tensor& /*k_TKH*/, const at::Tensor& /*cos_TH*/,
               const at::Tensor& /*sin_TH*/) {
  refuse();
}

Qkv rotary_qkv(const at::Tensor& /*qkv_TC*/, const QkvHeads& /*heads*/, const at::Tensor& /*cos_TH*/,
               const at::Tensor& /*sin_TH*/, const QkNorm& /*norm*/, RowRoom /*grad_room*/) {
  refuse();
}

}  // namespace apus::ops::cuda
