// Row selection both ways. Forward copies a row a block. Backward gives each block eight rows of dx: it finds
// where their run in the sorted index begins by bisection (14 reads of a small array that the cache holds),
// walks on from there, and writes a copy, a sum or zeros, so that dx is written once, with no zeroed pass and
// no atomics. Limit: memory; a thread has four loads of 16 bytes in flight.
#include "ops/kernels/select_rows.h"

#include <algorithm>
#include <type_traits>

#include "ops/kernels/launch_check.h"
#include "ops/kernels/vector.cuh"

namespace apus::ops::kernels {
namespace {

constexpr int64_t kMostBlocks = 1 << 16;
constexpr int kThreads = 128;
constexpr int kInFlight = 4;        // loads of a thread
constexpr int64_t kRowsABlock = 8;  // of dx

/// A row of 16-byte vectors, or of elements where rows are not aligned to that.
template <typename T, bool kAligned>
struct Piece {
  static constexpr int kWidth = kAligned ? kLanes<T> : 1;
  using Raw = std::conditional_t<kAligned, uint4, T>;

  static __device__ __forceinline__ void widened(const Raw& raw, float (&values)[kWidth]) {
    if constexpr (kAligned) {
      unpack<T>(raw, values);
    } else {
      values[0] = widen(raw);
    }
  }
  static __device__ __forceinline__ Raw rounded(const float (&values)[kWidth]) {
    if constexpr (kAligned) {
      return pack<T>(values);
    } else {
      return narrow<T>(values[0]);
    }
  }
};

/// Fills a row: piece i becomes make(i).
template <typename Raw, typename Make>
__device__ __forceinline__ void fill_row(Raw* row, int64_t pieces, const Make& make) {
  for (int64_t first = threadIdx.x; first < pieces; first += kInFlight * kThreads) {
    Raw raw[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (first + i * kThreads < pieces) raw[i] = make(first + i * kThreads);
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (first + i * kThreads < pieces) row[first + i * kThreads] = raw[i];
    }
  }
}

template <typename T, bool kAligned>
__device__ __forceinline__ typename Piece<T, kAligned>::Raw constant(float value) {
  float values[Piece<T, kAligned>::kWidth];
#pragma unroll
  for (float& each : values) each = value;
  return Piece<T, kAligned>::rounded(values);
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kThreads) gather(SelectedRows work) {
  using Raw = typename Piece<T, kAligned>::Raw;
  const int64_t pieces = work.width / Piece<T, kAligned>::kWidth;
  for (int64_t m = blockIdx.x; m < work.rows; m += gridDim.x) {
    const int64_t source = work.index[m];
    Raw* const to = reinterpret_cast<Raw*>(static_cast<T*>(work.y) + m * work.width);
    if (source >= 0 && source < work.source_rows) {
      const Raw* const from =
          reinterpret_cast<const Raw*>(static_cast<const T*>(work.x) + source * work.x_stride);
      fill_row(to, pieces, [from](int64_t piece) { return from[piece]; });
    } else {
      fill_row(to, pieces, [](int64_t) { return constant<T, kAligned>(NAN); });
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

/// A row of dx from the rows [first, end) of dy.
template <typename T, bool kAligned>
__device__ __forceinline__ void scatter_row(const SelectedRows& work, int64_t t, int64_t first, int64_t end) {
  using Of = Piece<T, kAligned>;
  using Raw = typename Of::Raw;
  const int64_t pieces = work.width / Of::kWidth;
  Raw* const to = reinterpret_cast<Raw*>(static_cast<T*>(work.y) + t * work.width);
  const auto row = [&work](int64_t m) {
    return reinterpret_cast<const Raw*>(static_cast<const T*>(work.x) + m * work.x_stride);
  };
  if (first == end) {
    fill_row(to, pieces, [](int64_t) { return constant<T, kAligned>(0.0F); });
  } else if (first + 1 == end) {
    fill_row(to, pieces, [from = row(first)](int64_t piece) { return from[piece]; });
  } else {
    fill_row(to, pieces, [&](int64_t piece) {
      float sum[Of::kWidth] = {};
      for (int64_t m = first; m < end; ++m) {
        float values[Of::kWidth];
        Of::widened(row(m)[piece], values);
#pragma unroll
        for (int i = 0; i < Of::kWidth; ++i) sum[i] += values[i];
      }
      return Of::rounded(sum);
    });
  }
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kThreads) scatter(SelectedRows work) {
  const int64_t step = int64_t{gridDim.x} * kRowsABlock;
  for (int64_t begin = int64_t{blockIdx.x} * kRowsABlock; begin < work.source_rows; begin += step) {
    int64_t first = lower_bound(work.index, work.rows, begin);
    for (int64_t t = begin; t < min(begin + kRowsABlock, work.source_rows); ++t) {
      int64_t end = first;
      while (end < work.rows && work.index[end] == t) ++end;
      scatter_row<T, kAligned>(work, t, first, end);
      first = end;
    }
  }
}

template <typename T>
void launch(const SelectedRows& work, bool backward, cudaStream_t stream) {
  const int64_t rows = backward ? work.source_rows : work.rows;
  if (rows == 0 || work.width == 0) return;
  const auto kernel = work.is_aligned ? (backward ? scatter<T, true> : gather<T, true>)
                                      : (backward ? scatter<T, false> : gather<T, false>);
  const int64_t blocks = backward ? (rows + kRowsABlock - 1) / kRowsABlock : rows;
  kernel<<<static_cast<unsigned>(std::min(blocks, kMostBlocks)), kThreads, 0, stream>>>(work);
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
