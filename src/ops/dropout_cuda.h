#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "apus/ops/dropout.h"

/// Dropout's kernel.
namespace apus::ops::cuda {

/// One or two tensors [T, F] of one dtype, bf16 or fp32, behind one mask; the results are dense.
std::vector<at::Tensor> drop(const std::vector<at::Tensor>& xs, const Dropout& options);

}  // namespace apus::ops::cuda
