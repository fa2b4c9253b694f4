#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "parallel/kernels/rank_sum.h"
#include "parallel/rank_sum_cuda.h"

namespace apus::parallel::cuda {

bool sums_in_one_pass(const at::Tensor& rows_NS) {
  const auto type = rows_NS.scalar_type();
  if (!rows_NS.is_cuda() || !rows_NS.is_contiguous()) return false;
  if (type != at::kFloat && type != at::kBFloat16) return false;
  const auto row_bytes = static_cast<uintptr_t>(rows_NS.size(1)) * rows_NS.element_size();
  return row_bytes % 16 == 0 && reinterpret_cast<uintptr_t>(rows_NS.const_data_ptr()) % 16 == 0;
}

at::Tensor sum_of_ranks(const at::Tensor& rows_NS) {
  const c10::cuda::CUDAGuard guard(rows_NS.device());
  at::Tensor sum_S = at::empty({rows_NS.size(1)}, rows_NS.options().dtype(at::kFloat));
  kernels::launch_rank_sum({.parts = rows_NS.const_data_ptr(),
                            .is_bf16 = rows_NS.scalar_type() == at::kBFloat16,
                            .ranks = rows_NS.size(0),
                            .elements = rows_NS.size(1)},
                           sum_S.mutable_data_ptr<float>(), c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return sum_S;
}

}  // namespace apus::parallel::cuda
