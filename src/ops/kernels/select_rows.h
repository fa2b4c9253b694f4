#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/kernels/element.h"

namespace apus::ops::kernels {

/// Rows of one matrix that make up another.
struct SelectedRows {
  const void* x = nullptr;  ///< forward: [source_rows, width] with a row stride; backward: dy [rows, width]
  void* y = nullptr;        ///< forward: [rows, width]; backward: dx [source_rows, width]
  const int64_t* index = nullptr;  ///< [rows], never descending
  int64_t rows = 0;
  int64_t source_rows = 0;
  int64_t width = 0;
  int64_t x_stride = 0;     ///< elements from row to row of x
  int64_t y_stride = 0;     ///< the same of y
  bool is_aligned = false;  ///< x and y to 16 bytes, width and strides multiples of that
};

/// y[m] = x[index[m]]; NaN where there is no such row.
void select_rows(const SelectedRows& work, Element element, cudaStream_t stream);

/// y[t] = sum over the m with index[m] = t of x[m], in fp32 in the order of m; zeros where there is none.
void select_rows_backward(const SelectedRows& work, Element element, cudaStream_t stream);

}  // namespace apus::ops::kernels
