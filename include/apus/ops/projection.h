#pragma once

#include <ATen/core/Tensor.h>

#include "apus/base/api.h"

namespace apus::memory {
class GradSink;
}

namespace apus::ops {

/// Rows of a table.
/// Shapes:      tokens int64 [T], weight [V, D] -> [T, D].
/// Dtypes:      out = weight's; the gradient of a row is the sum over its uses in the weight's dtype.
///              On a GPU that sum is made in fp32 and rounded once; with `gradients`, if the weight is a
///              parameter of that sink, it is added there and the tape gets none.
/// Determinism: bitwise; on a GPU the rows of a token are added in order, without atomics.
/// Throws:      ShapeError if tokens are not int64 [T] or (on CPU) one lies outside [0, V). On a GPU, which
///              cannot tell in time, such a row is NaN, so that the loss shows it, and has no gradient.
APUS_API at::Tensor embedding(const at::Tensor& tokens_T, const at::Tensor& weight_VD,
                              memory::GradSink* gradients = nullptr);

/// Matrix product with a weight stored [out, in], plus a bias.
/// Maths:       y = x W^T + b.
/// Shapes:      x [T, I], weight [O, I], bias [O] or undefined -> [T, O].
/// Dtypes:      all equal; accumulation in fp32 as in at::linear.
/// Throws:      ShapeError if shapes or dtypes do not fit.
APUS_API at::Tensor linear(const at::Tensor& x_TI, const at::Tensor& weight_OI,
                           const at::Tensor& bias_O = {});

}  // namespace apus::ops
