#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "apus/ops/norm.h"

/// The norms' kernels with tape; operands as takes_rows, at most kMaxNormVectors wide.
namespace apus::ops::cuda {

/// 16-byte pieces of the widest rows.
inline constexpr int64_t kMaxNormVectors = 2048;

ResidualRmsNorm rms_norm_residual(const at::Tensor& x_TD, const at::Tensor& weight_D, double eps,
                                  const RmsNormRooms& rooms);
AddRmsNorm add_rms_norm(const at::Tensor& x_TD, const at::Tensor& residual_TD, const at::Tensor& weight_D,
                        double eps);

}  // namespace apus::ops::cuda
