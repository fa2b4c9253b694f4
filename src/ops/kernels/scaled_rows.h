#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/kernels/element.h"

namespace apus::ops::kernels {

/// Rows [rows, width] of bf16 or fp32, dense, 16-byte aligned, width a multiple of 16 bytes.
struct GradientRows {
  const void* in = nullptr;
  void* out = nullptr;
  int64_t rows = 0;
  int64_t width = 0;
  Element element = Element::kBf16;
};

/// out[m] = in[m] * scale[m].
void launch_scale_rows(const GradientRows& rows, const float* scale, cudaStream_t stream);

/// Fills out[m] with NaN where found[m] differs from expected[m] by more than 1e-4 of it; reads no `in`.
void launch_require_scale(const GradientRows& rows, const float* found, const float* expected,
                          cudaStream_t stream);

}  // namespace apus::ops::kernels
