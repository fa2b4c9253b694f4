#pragma once

#include <cstdint>

#include "ops/kernels/persistent_grid.h"

// How element-wise kernels without a sum over a row share [rows, columns]: a block keeps one tile of columns
// and walks down the rows, so that no index is divided in its loop.
namespace apus::ops::kernels {

/// Threads of a block.
inline constexpr int kTileThreads = 256;
/// 16-byte pieces of each tensor that a thread has in flight.
inline constexpr int kTileVectors = 2;

/// The tiles that cover a row.
inline int64_t tiles_of(int64_t vectors) {
  constexpr int64_t kTile = int64_t{kTileThreads} * kTileVectors;
  return (vectors + kTile - 1) / kTile;
}

/// Blocks for [rows, vectors]: whole multiples of a row's tiles.
template <typename Kernel>
unsigned tile_grid(Kernel kernel, int64_t rows, int64_t vectors) {
  const int64_t tiles = tiles_of(vectors);
  const int64_t resident = persistent_grid(kernel, kTileThreads, rows * tiles);
  const int64_t walkers = resident / tiles;
  return static_cast<unsigned>(tiles * (walkers < 1 ? 1 : walkers > rows ? rows : walkers));
}

/// Calls body(row, first) for this thread's pieces of a row: vectors first + i * kTileThreads, i below
/// kTileVectors, of which the last may lie beyond the row's end.
template <typename Body>
__device__ __forceinline__ void for_tile(int64_t rows, int tiles, const Body& body) {
  const int first = static_cast<int>(blockIdx.x % tiles) * kTileThreads * kTileVectors + threadIdx.x;
  const int64_t step = gridDim.x / tiles;
  for (int64_t row = blockIdx.x / tiles; row < rows; row += step) body(row, first);
}

}  // namespace apus::ops::kernels
