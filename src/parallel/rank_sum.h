#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace apus::parallel {

/// sum fp32 [S] <- parts [n, S] of fp32 or bf16 (flat), added element by element in rank order, in fp32.
/// Stream:      GPU: the current one.
/// Determinism: the same bits on the CPU and on a GPU, however a buffer is cut.
at::Tensor sum_of_ranks(const at::Tensor& parts, int64_t ranks);

}  // namespace apus::parallel
