#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/kernels/element.h"

namespace apus::ops::kernels {

/// A matrix whose columns are summed, and where the sums go.
struct ColumnSum {
  const void* x = nullptr;  ///< [rows, columns]
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;
  Element element = Element::kBf16;
  float* partial = nullptr;  ///< [column_sum_chunks(rows), columns], scratch
  void* sum = nullptr;       ///< [columns]
  Element sum_element = Element::kFp32;
  bool adds = false;  ///< to what `sum` holds
};

/// Chunks of rows that are summed apart; depends on the number of rows alone.
int64_t column_sum_chunks(int64_t rows);

/// sum[c] = (adds ? sum[c] : 0) + sum over rows of x[row][c], in fp32 and in a fixed order.
void column_sum(const ColumnSum& work, cudaStream_t stream);

}  // namespace apus::ops::kernels
