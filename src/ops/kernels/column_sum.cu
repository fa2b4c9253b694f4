// The gradient of a bias: the sum over rows of the output's gradient. One read of [T, O] and nothing else of
// size, so bandwidth limits it. Rows are cut into chunks whose sums are kept apart and added in order by a
// second, tiny kernel: no atomics, the same bits every time. A warp reads 32 vectors of a row side by side;
// where rows are not aligned to 16 bytes, 32 single elements.
#include <algorithm>

#include "ops/kernels/column_sum.h"
#include "ops/kernels/launch_check.h"
#include "ops/kernels/vector.cuh"

namespace apus::ops::kernels {
namespace {

constexpr int kLanesX = 32;  // vectors side by side
constexpr int kRowsY = 8;    // rows at a time
constexpr int64_t kChunkRows = 128;
constexpr int64_t kMostChunks = 256;

template <typename T, int kWidth>
__device__ void add_row(const T* from, float (&sums)[kWidth]) {
  if constexpr (kWidth == 1) {
    sums[0] += widen(*from);
  } else {
    float values[kWidth];
    unpack<T>(load_vector(from, 0), values);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i] += values[i];
  }
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kLanesX* kRowsY) chunk_sums(const ColumnSum work, int64_t chunk_rows) {
  const int64_t column = (int64_t{blockIdx.x} * kLanesX + threadIdx.x) * kWidth;
  const int64_t begin = int64_t{blockIdx.y} * chunk_rows, end = min(begin + chunk_rows, work.rows);
  float sums[kWidth] = {};
  if (column < work.columns) {
    const T* x = static_cast<const T*>(work.x) + column;
#pragma unroll 4
    for (int64_t row = begin + threadIdx.y; row < end; row += kRowsY)
      add_row<T, kWidth>(x + row * work.row_stride, sums);
  }
  __shared__ float shared[kRowsY][kLanesX][kWidth + 1];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) shared[threadIdx.y][threadIdx.x][i] = sums[i];
  __syncthreads();
  if (threadIdx.y != 0 || column >= work.columns) return;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    float sum = 0.0F;
    for (int y = 0; y < kRowsY; ++y) sum += shared[y][threadIdx.x][i];
    work.partial[int64_t{blockIdx.y} * work.columns + column + i] = sum;
  }
}

template <typename T>
__global__ void add_chunk_sums(const ColumnSum work, int64_t chunks) {
  const int64_t column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= work.columns) return;
  float sum = 0.0F;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) sum += work.partial[chunk * work.columns + column];
  T* to = static_cast<T*>(work.sum) + column;
  *to = narrow<T>(work.adds ? widen(*to) + sum : sum);
}

template <typename T>
void launch_partial(const ColumnSum& work, int64_t chunks, cudaStream_t stream) {
  constexpr int kWide = kLanes<T>;
  const int64_t chunk_rows = (work.rows + chunks - 1) / chunks;
  const bool aligned = reinterpret_cast<uintptr_t>(work.x) % 16 == 0 && work.row_stride % kWide == 0 &&
                       work.columns % kWide == 0;
  const int64_t a_block = kLanesX * (aligned ? kWide : 1);
  const dim3 grid(static_cast<unsigned>((work.columns + a_block - 1) / a_block),
                  static_cast<unsigned>(chunks));
  const dim3 block(kLanesX, kRowsY);
  if (aligned)
    chunk_sums<T, kWide><<<grid, block, 0, stream>>>(work, chunk_rows);
  else
    chunk_sums<T, 1><<<grid, block, 0, stream>>>(work, chunk_rows);
}

}  // namespace

int64_t column_sum_chunks(int64_t rows) {
  return std::clamp<int64_t>((rows + kChunkRows - 1) / kChunkRows, 1, kMostChunks);
}

void column_sum(const ColumnSum& work, cudaStream_t stream) {
  if (work.columns == 0) return;
  const int64_t chunks = column_sum_chunks(work.rows);
  if (work.element == Element::kBf16)
    launch_partial<__nv_bfloat16>(work, chunks, stream);
  else
    launch_partial<float>(work, chunks, stream);
  check_launch("chunk_sums");
  constexpr int kThreads = 128;
  const auto blocks = static_cast<unsigned>((work.columns + kThreads - 1) / kThreads);
  if (work.sum_element == Element::kBf16)
    add_chunk_sums<__nv_bfloat16><<<blocks, kThreads, 0, stream>>>(work, chunks);
  else
    add_chunk_sums<float><<<blocks, kThreads, 0, stream>>>(work, chunks);
  check_launch("add_chunk_sums");
}

}  // namespace apus::ops::kernels
