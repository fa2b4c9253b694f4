#pragma once

#include <ATen/core/Tensor.h>

namespace apus::ops::cuda {

/// ops::select_rows for tensors on a GPU, checked already.
at::Tensor select_rows(const at::Tensor& x_TD, const at::Tensor& rows_M);

}  // namespace apus::ops::cuda
