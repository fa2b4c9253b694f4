// Row selection both ways. Forward copies a row a block. Backward gives each block a row of dx: it finds that
// row's run in the sorted index by bisection (14 reads of a small array that the cache holds) and writes the
// sum of the run, a copy or zeros, so that dx is written once, with no zeroed pass and no atomics. Limit:
// memory.
#include "ops/kernels/select_rows.h"

#include <algorithm>

#include "ops/kernels/launch_check.h"
#include "ops/kernels/vector.cuh"

namespace apus::ops::kernels {
namespace {

constexpr int64_t kMostBlocks = 1 << 16;
constexpr int kThreads = 128;

/// Pieces of a row: 16 bytes, or an element where rows are not aligned to that.
template <typename T, bool kAligned>
struct Piece {
  static constexpr int kWidth = kAligned ? kLanes<T> : 1;

  static __device__ __forceinline__ void load(const T* row, int64_t piece, float (&values)[kWidth]) {
    if constexpr (kAligned) {
      unpack<T>(load_vector(row, piece), values);
    } else {
      values[0] = widen(row[piece]);
    }
  }
  static __device__ __forceinline__ void store(T* row, int64_t piece, const float (&values)[kWidth]) {
    if constexpr (kAligned) {
      store_vector(row, piece, pack<T>(values));
    } else {
      row[piece] = narrow<T>(values[0]);
    }
  }
};

template <typename T, bool kAligned>
__global__ void gather(SelectedRows work) {
  using Of = Piece<T, kAligned>;
  for (int64_t m = blockIdx.x; m < work.rows; m += gridDim.x) {
    const int64_t source = work.index[m];
    const bool exists = source >= 0 && source < work.source_rows;
    const T* const from = static_cast<const T*>(work.x) + (exists ? source : 0) * work.x_stride;
    T* const to = static_cast<T*>(work.y) + m * work.width;
    for (int64_t piece = threadIdx.x; piece < work.width / Of::kWidth; piece += blockDim.x) {
      float values[Of::kWidth];
      if (exists) Of::load(from, piece, values);
#pragma unroll
      for (int i = 0; i < Of::kWidth; ++i) values[i] = exists ? values[i] : NAN;
      Of::store(to, piece, values);
    }
  }
}

/// The first place whose entry is not below `value`.
__device__ __forceinline__ int64_t lower_bound(const int64_t* sorted, int64_t count, int64_t value) {
  int64_t begin = 0, end = count;
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (sorted[middle] < value)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

template <typename T, bool kAligned>
__global__ void scatter(SelectedRows work) {
  using Of = Piece<T, kAligned>;
  for (int64_t t = blockIdx.x; t < work.source_rows; t += gridDim.x) {
    const int64_t first = lower_bound(work.index, work.rows, t);
    T* const to = static_cast<T*>(work.y) + t * work.width;
    for (int64_t piece = threadIdx.x; piece < work.width / Of::kWidth; piece += blockDim.x) {
      float sum[Of::kWidth] = {};
      for (int64_t m = first; m < work.rows && work.index[m] == t; ++m) {
        float values[Of::kWidth];
        Of::load(static_cast<const T*>(work.x) + m * work.x_stride, piece, values);
#pragma unroll
        for (int i = 0; i < Of::kWidth; ++i) sum[i] += values[i];
      }
      Of::store(to, piece, sum);
    }
  }
}

template <typename T>
void launch(const SelectedRows& work, bool backward, cudaStream_t stream) {
  const int64_t rows = backward ? work.source_rows : work.rows;
  if (rows == 0 || work.width == 0) return;
  const auto kernel = work.is_aligned ? (backward ? scatter<T, true> : gather<T, true>)
                                      : (backward ? scatter<T, false> : gather<T, false>);
  kernel<<<static_cast<unsigned>(std::min(rows, kMostBlocks)), kThreads, 0, stream>>>(work);
  check_launch(backward ? "select_rows_backward" : "select_rows");
}

}  // namespace

void select_rows(const SelectedRows& work, Element element, cudaStream_t stream) {
  element == Element::kBf16 ? launch<__nv_bfloat16>(work, false, stream) : launch<float>(work, false, stream);
}

void select_rows_backward(const SelectedRows& work, Element element, cudaStream_t stream) {
  element == Element::kBf16 ? launch<__nv_bfloat16>(work, true, stream) : launch<float>(work, true, stream);
}

}  // namespace apus::ops::kernels
