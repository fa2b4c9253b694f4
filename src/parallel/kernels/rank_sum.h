#pragma once

#include <cstdint>

struct CUstream_st;  // cudaStream_t points to one

namespace apus::parallel::kernels {

/// Rows of what ranks sent, one behind the other; 16-byte aligned, and so is the length of a row.
struct RankRows {
  const void* parts = nullptr;
  bool is_bf16 = false;
  int64_t ranks = 0;
  int64_t elements = 0;  // of a row
};

/// sum [elements] <- row 0 + row 1 + ..., in this order, in fp32.
void launch_rank_sum(const RankRows& rows, float* sum, CUstream_st* stream);

}  // namespace apus::parallel::kernels
