#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace apus::ops::kernels {

/// wide = narrow, bf16 to fp32, both dense; any alignment, the quick way is for 16 bytes. count > 0.
void widen(const void* narrow, float* wide, int64_t count, cudaStream_t stream);

}  // namespace apus::ops::kernels
