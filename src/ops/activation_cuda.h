#pragma once

#include <ATen/core/Tensor.h>

#include "apus/ops/activation.h"

/// The gated activation's kernels; operands of one dtype and shape, as takes_rows for [T, F].
namespace apus::ops::cuda {

/// With tape.
at::Tensor swiglu(const at::Tensor& gate_TF, const at::Tensor& up_TF);
/// With tape.
at::Tensor swiglu_packed(const at::Tensor& gate_up_TG, const SwigluRooms& rooms);
/// Without tape.
void swiglu_packed_into(const at::Tensor& act_TF, const at::Tensor& gate_up_TG);

}  // namespace apus::ops::cuda
