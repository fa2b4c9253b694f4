#include "apus/base/error.h"
#include "parallel/grad_norm_cuda.h"

namespace apus::parallel::cuda {
namespace {

constexpr const char* kRemedy = "this apus was built without CUDA; configure with -DAPUS_CUDA=ON";

}  // namespace

at::Tensor upload_runs(std::span<const WeightedRun>, at::Device device) {
  throw NotSupported(detail::concat("the gradients lie on ", device.str(), ", but ", kRemedy));
}

void block_sums_of_squares(const at::Tensor& grad_N, const at::Tensor&, const at::Tensor&) {
  throw NotSupported(detail::concat("the gradients lie on ", grad_N.device().str(), ", but ", kRemedy));
}

StepScalars step_scalars(const at::Tensor& total, const NormScales&, const at::Tensor&) {
  throw NotSupported(detail::concat("the gradient norm lies on ", total.device().str(), ", but ", kRemedy));
}

}  // namespace apus::parallel::cuda
