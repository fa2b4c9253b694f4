// Row selection both ways. Forward copies a row a block. Backward gives a block two rows of dx: it finds
// where their run in the sorted index begins, a warp comparing 32 entries at a time (three dependent reads of
// a small array that the cache holds), and writes a copy, a sum or zeros, so that dx is written once, with no
// zeroed pass and no atomics. Limit: memory; a thread has four loads of 16 bytes in flight.
#include "ops/kernels/select_rows.h"

#include <type_traits>

#include "ops/kernels/early_launch.cuh"
#include "ops/kernels/launch_check.h"
#include "ops/kernels/vector.cuh"

namespace apus::ops::kernels {
namespace {

constexpr int kWarp = 32;
constexpr int kGatherThreads = 256;
constexpr int kScatterThreads = 128;
constexpr int kGatherRows = 4;       // of a block
constexpr int64_t kScatterRows = 2;  // of dx, of a block

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

template <typename T, bool kAligned>
__device__ __forceinline__ typename Piece<T, kAligned>::Raw constant(float value) {
  float values[Piece<T, kAligned>::kWidth];
#pragma unroll
  for (float& each : values) each = value;
  return Piece<T, kAligned>::rounded(values);
}

/// Fills a row, kInFlight pieces a thread at a time: piece i becomes make(i).
template <int kInFlight, typename Raw, typename Make>
__device__ __forceinline__ void fill_row(Raw* row, int64_t pieces, const Make& make) {
  for (int64_t first = threadIdx.x; first < pieces; first += kInFlight * blockDim.x) {
    Raw raw[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (first + i * blockDim.x < pieces) raw[i] = make(first + i * blockDim.x);
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (first + i * blockDim.x < pieces) row[first + i * blockDim.x] = raw[i];
    }
  }
}

template <typename T, bool kAligned>
__device__ __forceinline__ const typename Piece<T, kAligned>::Raw* source_row(const SelectedRows& work,
                                                                              int64_t row) {
  return reinterpret_cast<const typename Piece<T, kAligned>::Raw*>(static_cast<const T*>(work.x) +
                                                                   row * work.x_stride);
}
template <typename T, bool kAligned>
__device__ __forceinline__ typename Piece<T, kAligned>::Raw* result_row(const SelectedRows& work,
                                                                        int64_t row) {
  return reinterpret_cast<typename Piece<T, kAligned>::Raw*>(static_cast<T*>(work.y) + row * work.y_stride);
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kGatherThreads) gather(SelectedRows work) {
  using Raw = typename Piece<T, kAligned>::Raw;
  const int64_t first = int64_t{blockIdx.x} * kGatherRows, pieces = work.width / Piece<T, kAligned>::kWidth;
  const Raw nothing = constant<T, kAligned>(NAN);
  wait_for_turn();
  const Raw* from[kGatherRows];
#pragma unroll
  for (int i = 0; i < kGatherRows; ++i) {
    const int64_t source = work.index[min(first + i, work.rows - 1)];
    const bool exists = source >= 0 && source < work.source_rows;
    from[i] = exists ? source_row<T, kAligned>(work, source) : nullptr;
  }
  for (int64_t piece = threadIdx.x; piece < pieces; piece += kGatherThreads) {
    Raw raw[kGatherRows];
#pragma unroll
    for (int i = 0; i < kGatherRows; ++i) raw[i] = from[i] == nullptr ? nothing : from[i][piece];
#pragma unroll
    for (int i = 0; i < kGatherRows; ++i) {
      if (first + i < work.rows) result_row<T, kAligned>(work, first + i)[piece] = raw[i];
    }
  }
}

/// The first place whose entry is not below `value`; the whole warp asks.
__device__ __forceinline__ int64_t lower_bound(const int64_t* sorted, int64_t count, int64_t value) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int64_t low = 0, high = count;
  while (low < high) {
    const int64_t step = (high - low + kWarp - 1) / kWarp, probe = low + lane * step;
    const bool is_below = probe < high && sorted[probe] < value;
    const int below = __popc(__ballot_sync(0xffffffffu, is_below));
    if (below == 0) return low;
    high = min(high, low + below * step);
    low += (below - 1) * step + 1;
  }
  return low;
}

/// A row of dx from the rows [first, end) of dy.
template <typename T, bool kAligned>
__device__ __forceinline__ void scatter_row(const SelectedRows& work, int64_t t, int64_t first, int64_t end) {
  using Of = Piece<T, kAligned>;
  auto* const to = result_row<T, kAligned>(work, t);
  const int64_t pieces = work.width / Of::kWidth;
  if (first == end) {
    fill_row<4>(to, pieces, [](int64_t) { return constant<T, kAligned>(0.0F); });
  } else if (first + 1 == end) {
    const auto* const from = source_row<T, kAligned>(work, first);
    fill_row<4>(to, pieces, [from](int64_t piece) { return from[piece]; });
  } else {
    fill_row<1>(to, pieces, [&](int64_t piece) {
      float sum[Of::kWidth] = {};
      for (int64_t m = first; m < end; ++m) {
        float values[Of::kWidth];
        Of::widened(source_row<T, kAligned>(work, m)[piece], values);
#pragma unroll
        for (int i = 0; i < Of::kWidth; ++i) sum[i] += values[i];
      }
      return Of::rounded(sum);
    });
  }
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kScatterThreads) scatter(SelectedRows work) {
  const int64_t begin = int64_t{blockIdx.x} * kScatterRows;
  wait_for_turn();
  int64_t first = lower_bound(work.index, work.rows, begin);
  for (int64_t t = begin; t < min(begin + kScatterRows, work.source_rows); ++t) {
    int64_t end = first;
    while (end < work.rows && work.index[end] == t) ++end;
    scatter_row<T, kAligned>(work, t, first, end);
    first = end;
  }
}

template <typename T>
void launch(const SelectedRows& work, bool backward, cudaStream_t stream) {
  const int64_t rows = backward ? work.source_rows : work.rows;
  if (rows == 0 || work.width == 0) return;
  const auto kernel = work.is_aligned ? (backward ? scatter<T, true> : gather<T, true>)
                                      : (backward ? scatter<T, false> : gather<T, false>);
  const int64_t a_block = backward ? kScatterRows : kGatherRows;
  const int threads = backward ? kScatterThreads : kGatherThreads;
  const LaunchShape shape{static_cast<unsigned>((rows + a_block - 1) / a_block),
                          static_cast<unsigned>(threads), stream};
  launch_early(kernel, shape, work);
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
