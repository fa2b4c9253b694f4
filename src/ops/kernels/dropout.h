#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/kernels/element.h"

namespace apus::ops::kernels {

/// One tensor behind a mask: rows of `columns` elements, y dense.
struct DroppedRows {
  const void* x = nullptr;  ///< null = none
  int64_t x_stride = 0;
  void* y = nullptr;
};

/// Dropout of up to two tensors of one shape behind one mask.
struct DropoutRows {
  DroppedRows tensors[2];
  const uint4* coordinates = nullptr;  ///< [rows] x ordinal, y side, z position
  uint64_t key = 0;
  uint32_t epoch = 0;
  uint32_t threshold = 0;  ///< a feature is kept where its 16 bits are at least this
  float scale = 1.0f;
  uint32_t first_feature = 0;
  int64_t rows = 0;
  int64_t columns = 0;
};

/// y = x * (kept ? scale : 0): detail::dropout_factors' bits. Any columns, strides and first_feature; the
/// quick way is for multiples of a vector that start at a multiple of 8 features. rows > 0, columns > 0.
void dropout(const DropoutRows& job, Element element, cudaStream_t stream);

}  // namespace apus::ops::kernels
