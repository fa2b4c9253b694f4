#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cmath>

#include "optim/adamw_cuda.h"
#include "optim/kernels/adamw.h"

namespace apus::optim::cuda {
namespace {

template <typename T>
const T* pointer_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
}

kernels::AdamwNumbers numbers_of(const AdamwOptions& options, const GradScaling& scaling,
                                 bool states_are_bf16) {
  const auto step = static_cast<double>(options.step);
  return {.lr = options.lr,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .decay = options.decay,
          .correction1 = 1.0 - std::pow(options.beta1, step),
          .correction2_sqrt = std::sqrt(1.0 - std::pow(options.beta2, step)),
          .host_step = options.step,
          .one_minus_beta1 = static_cast<float>(1.0 - options.beta1),
          .beta2_rounded = static_cast<float>(options.beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - options.beta2),
          .epsilon = options.epsilon,
          .folds_correction = states_are_bf16,
          .step = pointer_or_null<int64_t>(scaling.step),
          .clip_factor = pointer_or_null<float>(scaling.clip_factor),
          .found_inf = pointer_or_null<float>(scaling.found_inf)};
}

}  // namespace

void adamw_step(const AdamwState& state, const at::Tensor& grad_N, const at::Tensor& compute_copy_N,
                const AdamwSegments& segments, const AdamwOptions& options, const GradScaling& scaling) {
  if (segments.list().empty() || state.master_N.numel() == 0) return;
  const c10::cuda::CUDAGuard guard(state.master_N.device());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  const auto* rows = static_cast<const detail::AdamwRow*>(segments.table().const_data_ptr());
  const auto count = static_cast<int64_t>(segments.list().size());
  float* coefficients = segments.coefficients().mutable_data_ptr<float>();
  const bool states_are_bf16 = state.master_N.scalar_type() == at::kBFloat16;
  const kernels::AdamwNumbers numbers = numbers_of(options, scaling, states_are_bf16);
  kernels::launch_adamw_coefficients(rows, count, numbers, coefficients, stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();

  const bool copies = compute_copy_N.defined();
  const kernels::AdamwPointers arrays{.master = state.master_N.mutable_data_ptr(),
                                      .exp_avg = state.exp_avg_N.mutable_data_ptr(),
                                      .exp_avg_sq = state.exp_avg_sq_N.mutable_data_ptr(),
                                      .grad = grad_N.const_data_ptr(),
                                      .compute_copy = copies ? compute_copy_N.mutable_data_ptr() : nullptr,
                                      .elements = state.master_N.numel()};
  const kernels::AdamwDtypes dtypes{.states_are_bf16 = states_are_bf16,
                                    .grad_is_bf16 = grad_N.scalar_type() == at::kBFloat16,
                                    .copy_is_bf16 = copies && compute_copy_N.scalar_type() == at::kBFloat16,
                                    .copy_is_fp16 = copies && compute_copy_N.scalar_type() == at::kHalf};
  kernels::launch_adamw(arrays, dtypes, rows, count, numbers, coefficients, stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace apus::optim::cuda
