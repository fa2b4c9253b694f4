#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "apus/ops/row_room.h"

/// What the element-wise kernels can take, in terms of tensors: decided before anything is launched, the same
/// in builds with and without CUDA.
namespace apus::ops {

/// bf16 or fp32 on a GPU.
bool is_kernel_tensor(const at::Tensor& x);

/// Elements of x's dtype in the 16 bytes that kernels read at a time.
int64_t elements_a_vector(const at::Tensor& x);

/// Whether a kernel can take rows of x [T, D]: is_kernel_tensor, and D a multiple of a vector.
bool takes_rows(const at::Tensor& x_TD);

/// x as kernels read it: itself if its rows have unit inner stride, and stride and start are multiples of 16
/// bytes; else a dense copy.
at::Tensor kernel_rows(const at::Tensor& x_TD);

/// Distance of rows of a tensor that kernel_rows gave, 0 for one that repeats.
int64_t row_stride(const at::Tensor& x_TD);

/// A room whose columns are multiples of a vector of x, else none: kernels write rows beside no other.
RowRoom kernel_room(RowRoom room, const at::Tensor& x);

}  // namespace apus::ops
