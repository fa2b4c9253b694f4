#pragma once

#include <ATen/core/Tensor.h>

#include "apus/base/api.h"

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

}  // namespace apus::ops
