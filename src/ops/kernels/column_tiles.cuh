#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/kernels/persistent_grid.h"

// How element-wise kernels without a sum over a row share [rows, columns]: a block keeps one tile of columns
// and walks down the rows, so that no index is divided in its loop.
namespace apus::ops::kernels {

/// Threads of a block, at most.
inline constexpr int kTileThreads = 256;
/// 16-byte pieces of each tensor that a thread has in flight.
inline constexpr int kTileVectors = 2;

/// Tiles that cover a row, and blocks of just as many threads as one takes.
struct Tiles {
  int count = 0;
  unsigned threads = 0;
  unsigned blocks = 0;
};

/// For [rows, vectors]: the blocks are whole multiples of a row's tiles.
template <typename Kernel>
Tiles tiles_of(Kernel kernel, int64_t rows, int64_t vectors) {
  constexpr int64_t kWidest = int64_t{kTileThreads} * kTileVectors, kWarp = 32;
  const auto parts = [](int64_t whole, int64_t part) { return (whole + part - 1) / part; };
  const int64_t count = parts(vectors, kWidest);
  const int64_t threads = parts(parts(parts(vectors, count), kTileVectors), kWarp) * kWarp;
  const int64_t most = resident_blocks(kernel, static_cast<int>(threads)) / count;
  const int64_t walkers = even_walkers(std::max<int64_t>(1, most), rows);
  return {static_cast<int>(count), static_cast<unsigned>(threads), static_cast<unsigned>(count * walkers)};
}

/// Calls body(row, first) for this thread's pieces of a row: vectors first + i * blockDim.x, i below
/// kTileVectors, of which the last may lie beyond the row's end.
template <typename Body>
__device__ __forceinline__ void for_tile(int64_t rows, int tiles, const Body& body) {
  const int first = static_cast<int>(blockIdx.x % tiles * blockDim.x * kTileVectors + threadIdx.x);
  const int64_t step = gridDim.x / tiles;
  for (int64_t row = blockIdx.x / tiles; row < rows; row += step) body(row, first);
}

}  // namespace apus::ops::kernels
