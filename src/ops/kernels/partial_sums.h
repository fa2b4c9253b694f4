#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/kernels/element.h"

namespace apus::ops::kernels {

/// out[c] = sum over r of partials[r, c], in one fixed order: the second half of sums over rows that each
/// block began in registers.
/// Shapes:      partials fp32 [count, columns], dense; out [columns].
/// Determinism: bitwise.
void sum_partials(const float* partials, int64_t count, int64_t columns, void* out, Element element,
                  cudaStream_t stream);

}  // namespace apus::ops::kernels
