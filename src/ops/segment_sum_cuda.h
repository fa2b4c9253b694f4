#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace apus::ops::cuda {

/// ops::segment_sum for tensors on a GPU, checked already.
at::Tensor segment_sum(const at::Tensor& x_M, const at::Tensor& segments_M, int64_t count);

}  // namespace apus::ops::cuda
