#pragma once

#include <ATen/core/Tensor.h>

#include "apus/base/api.h"
#include "apus/ops/row_room.h"

namespace apus::ops {

/// Root-mean-square normalisation over the last dim.
/// Maths:       y = cast(x * rsqrt(mean(x^2) + eps)) * w; the cast is to x's dtype.
/// Shapes:      x [T, D] (any leading dims), w [D] -> y as x.
/// Dtypes:      bf16 | fp32, computed in fp32; out = in.
/// Throws:      ShapeError if w is not [D] or has another dtype than x.
/// Source:      Zhang, Sennrich, "Root mean square layer normalization", 2019; rounding as in Hugging Face.
APUS_API at::Tensor rms_norm(const at::Tensor& x_TD, const at::Tensor& weight_D, double eps);

/// What add_rms_norm returns.
struct APUS_API AddRmsNorm {
  at::Tensor normed;  ///< rms_norm(sum), as x
  at::Tensor sum;     ///< x + residual, the residual of the next addition
};

/// The residual addition and the norm behind it, as one operation because they share a pass over memory.
/// Maths:       sum = x + residual; normed = rms_norm(sum, w, eps).
/// Shapes:      x, residual [T, D], w [D] -> both [T, D].
/// Dtypes:      bf16 | fp32; the sum is rounded to it before the norm reads it.
/// Throws:      ShapeError as rms_norm, or if x and residual differ in shape.
APUS_API AddRmsNorm add_rms_norm(const at::Tensor& x_TD, const at::Tensor& residual_TD,
                                 const at::Tensor& weight_D, double eps);

/// What rms_norm_residual returns.
struct APUS_API ResidualRmsNorm {
  at::Tensor normed;  ///< rms_norm(x), as x
  at::Tensor passed;  ///< x itself, for the residual path around what the norm feeds
};

/// Spare columns that the readers of a norm's results ask for. A wish: kernels grant it, the twin makes dense
/// rows; ask has_room.
struct APUS_API RmsNormRooms {
  RowRoom normed = {};  ///< beside the rows of `normed`
  RowRoom grad = {};    ///< beside the rows of x's gradient
};

/// A norm and the residual path that starts at its input, as one operation: both gradients meet in one pass.
/// Maths:       normed = rms_norm(x, w, eps), passed = x; dx = d_passed + the norm's gradient.
/// Shapes:      x [T, D], w [D] -> both [T, D]; on a GPU rows of x and of the gradients may be strided.
/// Dtypes:      bf16 | fp32, computed in fp32; on a GPU rounded once, at the end.
/// Memory:      keeps x by reference and, on a GPU, 4 bytes a row.
/// Determinism: bitwise; dw adds rows in an order that depends on T and the device's size alone. A frozen w
///              costs nothing in backward.
/// Throws:      as rms_norm; ShapeError if x is not [T, D].
APUS_API ResidualRmsNorm rms_norm_residual(const at::Tensor& x_TD, const at::Tensor& weight_D, double eps,
                                           const RmsNormRooms& rooms = {});

}  // namespace apus::ops
