#include "apus/base/error.h"
#include "ops/norm_cuda.h"

namespace apus::ops::cuda {
namespace {

[[noreturn]] void refuse() {
  throw NotSupported("rms_norm on a GPU: this apus was built without CUDA; configure with -DAPUS_CUDA=ON");
}

}  // namespace

ResidualRmsNorm rms_norm_residual(const at::Tensor& /*x_TD*/, const at::Tensor& /*weight_D*/, double /*eps*/,
                                  const RmsNormRooms& /*rooms*/) {
  refuse();
}

AddRmsNorm add_rms_norm(const at::Tensor& /*x_TD*/, const at::Tensor& /*residual_TD*/,
                        const at::Tensor& /*weight_D*/, double /*eps*/) {
  refuse();
}

}  // namespace apus::ops::cuda
