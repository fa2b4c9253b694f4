#pragma once

#include <ATen/core/Tensor.h>

#include "apus/base/api.h"

namespace apus::ops {

/// The gated activation of the Llama-like feed-forward layer.
/// Maths:       y = silu(gate) * up, silu(z) = z / (1 + exp(-z)).
/// Shapes:      gate, up [T, F] -> [T, F].
/// Dtypes:      bf16 | fp32; silu in fp32, rounded to the dtype before the product.
/// Throws:      ShapeError if gate and up differ in shape.
/// Source:      Shazeer, "GLU variants improve transformer", 2020.
APUS_API at::Tensor swiglu(const at::Tensor& gate_TF, const at::Tensor& up_TF);

}  // namespace apus::ops
