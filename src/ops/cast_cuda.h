#pragma once

#include <ATen/core/Tensor.h>

/// Casts between bf16 and fp32.
namespace apus::ops::cuda {

/// With tape. x is on a GPU and of one of the two dtypes, `dtype` is the other.
at::Tensor cast(const at::Tensor& x, at::ScalarType dtype);

}  // namespace apus::ops::cuda
