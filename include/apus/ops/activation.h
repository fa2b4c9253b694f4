#pragma once

#include <ATen/core/Tensor.h>

#include "apus/base/api.h"
#include "apus/ops/row_room.h"

namespace apus::ops {

/// The gated activation of the Llama-like feed-forward layer.
/// Maths:       y = silu(gate) * up, silu(z) = z / (1 + exp(-z)).
/// Shapes:      gate, up [T, F] -> [T, F].
/// Dtypes:      bf16 | fp32; silu in fp32, rounded to the dtype before the product.
/// Throws:      ShapeError if gate and up differ in shape.
/// Source:      Shazeer, "GLU variants improve transformer", 2020.
APUS_API at::Tensor swiglu(const at::Tensor& gate_TF, const at::Tensor& up_TF);

/// Rooms beside the rows of swiglu_packed's result and of its input's gradient. A wish: kernels grant it, the
/// twin makes dense rows; ask has_room.
struct APUS_API SwigluRooms {
  RowRoom out = {};
  RowRoom grad = {};
};

/// The gated activation of gate and up that lie beside each other, as one fused projection makes them.
/// Maths:       y = silu(gate_up[:, :F]) * gate_up[:, F:].
/// Shapes:      gate_up [T, 2F] -> [T, F]; on a GPU rows may be strided.
/// Dtypes:      as swiglu; on a GPU rounded once, at the end.
/// Memory:      keeps gate_up by reference; backward makes its gradient [T, 2F] in one pass.
/// Throws:      ShapeError if gate_up is not [T, an even width].
APUS_API at::Tensor swiglu_packed(const at::Tensor& gate_up_TG, const SwigluRooms& rooms = {});

/// swiglu_packed into rows that exist, without tape: for a backward that makes the activation again.
/// Shapes:      gate_up [T, 2F], act [T, F] of the same dtype; rows of both may be strided.
/// Throws:      ShapeError if they do not fit.
APUS_API void swiglu_packed_into(const at::Tensor& act_TF, const at::Tensor& gate_up_TG);

}  // namespace apus::ops
