#pragma once

#include <ATen/core/Tensor.h>

#include "apus/ops/rotary.h"

/// The element-wise operations as compositions of ATen's, on any device and for any size: what the CPU runs,
/// what a GPU runs where a kernel does not take the operands, and what the kernels are tested against.
/// Operands are checked by the callers.
namespace apus::ops::twin {

at::Tensor rms_norm(const at::Tensor& x_TD, const at::Tensor& weight_D, double eps);
at::Tensor swiglu(const at::Tensor& gate_TF, const at::Tensor& up_TF);
at::Tensor swiglu_packed(const at::Tensor& gate_up_TG);
Rotated rotary(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& cos_TH,
               const at::Tensor& sin_TH);
Qkv rotary_qkv(const at::Tensor& qkv_TC, const QkvHeads& heads, const at::Tensor& cos_TH,
               const at::Tensor& sin_TH, const QkNorm& norm);

}  // namespace apus::ops::twin
