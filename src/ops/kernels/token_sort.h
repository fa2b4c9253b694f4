#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace apus::ops::kernels {

/// The most tokens that one block sorts.
inline constexpr int64_t kMostSortedTokens = 16384;

/// A micro-batch's tokens, to be sorted, and the table's gradient, to be cleared where none of them is.
struct TokenSort {
  const int64_t* tokens = nullptr;  ///< [rows]
  int32_t* sorted = nullptr;        ///< [rows], ascending; what is outside the table stands last, as `vocab`
  int64_t* positions = nullptr;     ///< [rows], where each came from, ascending among equals
  int64_t rows = 0;                 ///< at most kMostSortedTokens
  int64_t vocab = 0;
  void* grad = nullptr;   ///< [vocab] rows, dense, aligned to 16 bytes; null = left as it is
  int64_t row_bytes = 0;  ///< of grad, a multiple of 16
};

/// Whether sort_tokens takes so many tokens of such a table.
constexpr bool sorts_tokens(int64_t rows, int64_t vocab) {
  return rows > 0 && rows <= kMostSortedTokens && vocab < int64_t{1} << 24;
}

void sort_tokens(const TokenSort& job, cudaStream_t stream);

}  // namespace apus::ops::kernels
