#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/kernels/divider.h"
#include "ops/kernels/launch_check.h"

// How kernels share work that needs no neighbours: one piece a thread, as many blocks as that takes. Blocks
// that end make room for others that begin, so loads and stores of different blocks overlap; a persistent
// grid with two pieces in flight a thread was 10 to 15 percent slower on an H200, streaming hints 5.
namespace apus::ops::kernels {

/// Pieces that one launch may count: their index is 32 bits, see Divider.
inline constexpr int64_t kMostPieces = int64_t{1} << 31;

inline unsigned blocks_of(int64_t work, int64_t a_block) {
  return static_cast<unsigned>((work + a_block - 1) / a_block);
}

/// Calls launch(first row, rows) for slices of at most kMostPieces pieces, which nearly always is once.
template <typename Launch>
void for_slices(int64_t rows, int64_t pieces_a_row, const Launch& launch) {
  const int64_t most = std::max<int64_t>(1, (kMostPieces - 1) / pieces_a_row);
  for (int64_t first = 0; first < rows; first += most) launch(first, std::min(most, rows - first));
}

/// A piece's row and its index there.
struct PiecePlace {
  uint32_t row;
  uint32_t index;
};

#if defined(__CUDACC__)
__device__ __forceinline__ PiecePlace place_of(uint32_t piece, const Divider& pieces_a_row) {
  const uint32_t row = pieces_a_row.quotient(piece);
  return {row, piece - row * pieces_a_row.divisor()};
}
#endif

}  // namespace apus::ops::kernels
