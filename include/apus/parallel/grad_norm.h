#pragma once

#include <ATen/core/Tensor.h>

#include "apus/base/api.h"

namespace apus::parallel {

/// Sum of squares of a flat fp32 gradient, in blocks of FlatLayout::kBlockElements.
///
/// Maths:       sum over blocks of (sum over the block of g^2), the outer sum in double.
/// Shapes:      grad fp32 [n] on the CPU, contiguous.
/// Determinism: bitwise: blocks are added in order, whatever the number of threads. Shards are cut at block
///              borders, so a block's sum does not depend on the world.
/// Throws:      ShapeError for another dtype or layout.
APUS_API double sum_of_squares(const at::Tensor& grad_N);

}  // namespace apus::parallel
