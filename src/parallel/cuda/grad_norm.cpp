#include "parallel/grad_norm_cuda.h"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cstring>

#include "parallel/kernels/grad_norm.h"

namespace apus::parallel::cuda {

at::Tensor upload_runs(std::span<const WeightedRun> runs, at::Device device) {
  if (runs.empty()) return {};
  const at::Tensor rows =
      at::empty({static_cast<int64_t>(runs.size() * sizeof(kernels::WeightRow))}, at::kByte);
  auto* next = rows.mutable_data_ptr<uint8_t>();
  for (const WeightedRun& run : runs) {
    const kernels::WeightRow row{run.begin, run.end, run.weight};
    std::memcpy(next, &row, sizeof(row));
    next += sizeof(row);
  }
  return rows.to(device);
}

void block_sums_of_squares(const at::Tensor& grad_N, const at::Tensor& runs, const at::Tensor& sums_B) {
  const c10::cuda::CUDAGuard guard(grad_N.device());
  kernels::NormInput input{.grad = grad_N.const_data_ptr(),
                           .is_bf16 = grad_N.scalar_type() == at::kBFloat16,
                           .elements = grad_N.numel()};
  if (runs.defined()) {
    input.runs = static_cast<const kernels::WeightRow*>(runs.const_data_ptr());
    input.run_count = runs.numel() / static_cast<int64_t>(sizeof(kernels::WeightRow));
  }
  kernels::launch_block_sums(input, sums_B.mutable_data_ptr<double>(), c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

StepScalars step_scalars(const at::Tensor& total, const NormScales& scales, const at::Tensor& step_1) {
  const c10::cuda::CUDAGuard guard(total.device());
  const auto fp32 = total.options().dtype(at::kFloat);
  StepScalars scalars{.norm = at::empty({1}, total.options()),
                      .clip_factor = at::empty({1}, fp32),
                      .found_inf = at::empty({1}, fp32),
                      .step = step_1};
  const double* values = total.const_data_ptr<double>();
  const kernels::StepPointers pointers{.sum = values,
                                       .flag = total.numel() > 1 ? values + 1 : nullptr,
                                       .norm = scalars.norm.mutable_data_ptr<double>(),
                                       .clip_factor = scalars.clip_factor.mutable_data_ptr<float>(),
                                       .found_inf = scalars.found_inf.mutable_data_ptr<float>(),
                                       .step = step_1.mutable_data_ptr<int64_t>(),
                                       .max_norm = scales.max_norm,
                                       .loss_scale = scales.loss_scale};
  kernels::launch_step_scalars(pointers, c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return scalars;
}

}  // namespace apus::parallel::cuda
