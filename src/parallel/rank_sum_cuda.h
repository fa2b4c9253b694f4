#pragma once

#include <ATen/core/Tensor.h>

namespace apus::parallel::cuda {

/// Whether sum_of_ranks takes these rows: on a GPU, fp32 or bf16, cut at 16-byte borders.
bool sums_in_one_pass(const at::Tensor& rows_NS);

/// sum fp32 [S] <- the rows' sum, row 0 first. Only where sums_in_one_pass says so.
at::Tensor sum_of_ranks(const at::Tensor& rows_NS);

}  // namespace apus::parallel::cuda
