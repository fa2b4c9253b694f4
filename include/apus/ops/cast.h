#pragma once

#include <ATen/core/Tensor.h>

#include "apus/base/api.h"

namespace apus::ops {

/// The tensor in another dtype, differentiable: x.to(dtype), whose kernel from bf16 to fp32 reaches half of a
/// GPU's bandwidth, by an own one there, in both directions of the tape.
/// Shapes:      any -> the same.
/// Dtypes:      any; a narrower one is rounded to nearest even.
/// Memory:      x itself if it has the dtype already; else a dense copy.
APUS_API at::Tensor cast(const at::Tensor& x, at::ScalarType dtype);

}  // namespace apus::ops
