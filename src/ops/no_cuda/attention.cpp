#include "apus/base/error.h"
#include "ops/attention_cuda.h"

namespace apus::ops::cuda {
namespace {

[[noreturn]] void refuse() {
  throw NotSupported("attention on a GPU: this apus was built without CUDA; configure with -DAPUS_CUDA=ON");
}

}  // namespace

at::Tensor attention(const at::Tensor&, const at::Tensor&, const at::Tensor&, const AttentionRows&, RowRoom) {
  refuse();
}

std::shared_ptr<AttentionPlans> make_attention_plans() {
  refuse();
}

}  // namespace apus::ops::cuda
