#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "apus/ops/rotary.h"

/// The rotation's kernels with tape; operands of one dtype, tables [T, H].
namespace apus::ops::cuda {

/// Whether there are kernels for heads of this size and dtype; with norms fewer sizes fit.
bool takes_heads(const at::Tensor& x, int64_t head_dim, bool normed);

Rotated rotary(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& cos_TH,
               const at::Tensor& sin_TH);
Qkv rotary_qkv(const at::Tensor& qkv_TC, const QkvHeads& heads, const at::Tensor& cos_TH,
               const at::Tensor& sin_TH, const QkNorm& norm, RowRoom grad_room);

}  // namespace apus::ops::cuda
