#include "apus/base/error.h"
#include "ops/activation_cuda.h"

namespace apus::ops::cuda {
namespace {

[[noreturn]] void refuse() {
  throw NotSupported("swiglu on a GPU: this apus was built without CUDA; configure with -DAPUS_CUDA=ON");
}

}  // namespace

at::Tensor swiglu(const at::Tensor& /*gate_TF*/, const at::Tensor& /*up_TF*/) {
  refuse();
}

at::Tensor swiglu_packed(const at::Tensor& /*gate_up_TG*/, const SwigluRooms& /*rooms*/) {
  refuse();
}

void swiglu_packed_into(const at::Tensor& /*act_TF*/, const at::Tensor& /*gate_up_TG*/) {
  refuse();
}

}  // namespace apus::ops::cuda
