#pragma once

#include <ATen/core/Tensor.h>

#include "apus/base/api.h"
#include "apus/ops/row_room.h"

namespace apus::ops {

/// The rows of a matrix that a loss looks at.
/// Maths:       y[m] = x[rows[m]]; dx[t] = sum over the m with rows[m] = t of dy[m], 0 where there is none.
/// Shapes:      x [T, D] (rows may be strided), rows int64 [M], never descending (a row may be taken more
///              than once) -> [M, D]. M = 0 and T = 0 are allowed.
/// Dtypes:      any float; sums of more than one row are made in fp32 and rounded once on a GPU.
/// Memory:      backward: dx [T, D], each row written once on a GPU; rows alone are kept.
/// Determinism: run-to-run; no atomics.
/// Throws:      ShapeError if shapes do not fit, devices differ or (on CPU) rows are outside [0, T); on a GPU
///              such a row reads as NaN and takes no gradient.
/// `room`: spare columns that the rows' reader asks for; a wish that kernels grant, ask has_room.
APUS_API at::Tensor select_rows(const at::Tensor& x_TD, const at::Tensor& rows_M, RowRoom room = {});

}  // namespace apus::ops
