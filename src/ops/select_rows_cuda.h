#pragma once

#include <ATen/core/Tensor.h>

#include "apus/ops/row_room.h"

namespace apus::ops::cuda {

/// ops::select_rows for tensors on a GPU, checked already.
at::Tensor select_rows(const at::Tensor& x_TD, const at::Tensor& rows_M, RowRoom room);

}  // namespace apus::ops::cuda
