#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/kernels/element.h"

namespace apus::ops::kernels {

/// The widest rows that the norm's kernels take.
constexpr int64_t max_norm_columns(Element element) {
  return int64_t{2048} * elements_a_vector(element);
}

/// Rows of a norm. Strides are in elements and, like the columns, multiples of a vector; pointers are aligned
/// to 16 bytes.
struct NormForward {
  const void* x = nullptr;
  int64_t x_stride = 0;
  const void* residual = nullptr;  ///< added to x first; null = none
  int64_t residual_stride = 0;
  void* sum = nullptr;  ///< x + residual, rounded, dense; with a residual alone
  const void* weight = nullptr;
  void* normed = nullptr;
  int64_t normed_stride = 0;
  float* scale = nullptr;  ///< [rows], 1 / rms of each row, for backward
  int64_t rows = 0;
  int64_t columns = 0;
  float eps = 0.0f;
};

/// sum = x + residual; normed = sum * scale * weight, scale = rsqrt(mean(sum^2) + eps). rows > 0.
void norm_forward(const NormForward& job, Element element, cudaStream_t stream);

/// The gradients of norm_forward.
struct NormBackward {
  const void* x = nullptr;  ///< what was normed: the sum, if there was one
  int64_t x_stride = 0;
  const void* weight = nullptr;
  const float* scale = nullptr;
  const void* d_normed = nullptr;
  int64_t d_normed_stride = 0;
  const void* d_passed = nullptr;  ///< gradient that reaches x beside the norm; null = none
  int64_t d_passed_stride = 0;
  void* dx = nullptr;  ///< null = not wanted
  int64_t dx_stride = 0;
  float* partials = nullptr;  ///< [norm_partials(...), columns]: sums of d_weight; null = not wanted
  int64_t rows = 0;
  int64_t columns = 0;
};

/// How many rows of partial sums norm_backward writes on the current device.
int64_t norm_partials(int64_t rows, int64_t columns, Element element);

/// dx = d_passed + scale * (g - xhat * mean(g * xhat)), g = d_normed * weight, xhat = x * scale; the partials
/// hold sums over rows of d_normed * xhat. rows > 0.
void norm_backward(const NormBackward& job, Element element, cudaStream_t stream);

}  // namespace apus::ops::kernels
