// Dropout by Philox at each row's coordinate: reads x, writes y, and draws the mask, which is never stored.
// One block of Philox, ten rounds of two wide products, serves eight features with 16 bits each: its integer
// arithmetic takes about half of the time that the bytes do, and hides behind them where enough threads run.
// (24 bits a feature, a block for four, took 1.3 times the bytes' time.) Two tensors behind one mask share
// the drawing.
#include "ops/kernels/dropout.h"

#include <cstdint>

#include "apus/base/philox.h"
#include "ops/dropout_kernel.h"
#include "ops/kernels/flat.cuh"
#include "ops/kernels/persistent_grid.h"
#include "ops/kernels/vector.cuh"

namespace apus::ops::kernels {
namespace {

using detail::kDropoutGroup;

constexpr int kThreads = 256;
constexpr int kBlocks = 8;  // a multiprocessor

__device__ __forceinline__ SampleCoordinate coordinate_of(const DropoutRows& job, int64_t row) {
  const uint4 at = __ldg(job.coordinates + row);
  return {.epoch = job.epoch, .ordinal = at.x, .side = at.y, .position = at.z};
}

__device__ __forceinline__ float factor_of(const DropoutRows& job, uint32_t bits) {
  return bits >= job.threshold ? job.scale : 0.0f;
}

/// What kept features are multiplied by, for the vector `at` of a row.
template <typename T>
__device__ __forceinline__ void draw(const DropoutRows& job, const SampleCoordinate& place, uint32_t at,
                                     float (&factors)[kLanes<T>]) {
  const uint32_t feature = job.first_feature + at * kLanes<T>;
  const PhiloxBlock bits = philox4x32(detail::dropout_counter(place, feature), job.key);
  // In fp32 a vector is half a group.
  const bool is_second = feature % kDropoutGroup != 0;
#pragma unroll
  for (int j = 0; j < kLanes<T>; j += 2) {
    const uint32_t word = kLanes<T> == 4 && is_second ? bits.w[j / 2 + 2] : bits.w[j / 2];
    factors[j] = factor_of(job, word & 0xffffu);
    factors[j + 1] = factor_of(job, word >> 16);
  }
}

template <typename T>
__device__ __forceinline__ void multiply(const DroppedRows& tensor, int64_t row, int64_t columns, uint32_t at,
                                         const uint4& raw, const float (&factors)[kLanes<T>]) {
  float values[kLanes<T>];
  unpack<T>(raw, values);
#pragma unroll
  for (int j = 0; j < kLanes<T>; ++j) values[j] *= factors[j];
  store_vector(static_cast<T*>(tensor.y) + row * columns, at, pack<T>(values));
}

template <typename T, bool kSecond>
__global__ void __launch_bounds__(kThreads, kBlocks)
    drop_vectors(DropoutRows job, Divider vectors, uint32_t count) {
  const uint32_t piece = blockIdx.x * kThreads + threadIdx.x;
  if (piece >= count) return;
  const auto [row, at] = place_of(piece, vectors);
  uint4 raw[2];
#pragma unroll
  for (int i = 0; i < (kSecond ? 2 : 1); ++i)
    raw[i] =
        load_vector(static_cast<const T*>(job.tensors[i].x) + int64_t{row} * job.tensors[i].x_stride, at);
  float factors[kLanes<T>];
  draw<T>(job, coordinate_of(job, row), at, factors);
#pragma unroll
  for (int i = 0; i < (kSecond ? 2 : 1); ++i)
    multiply<T>(job.tensors[i], row, job.columns, at, raw[i], factors);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) drop_elements(DropoutRows job) {
  for (int64_t row = blockIdx.x; row < job.rows; row += gridDim.x) {
    const SampleCoordinate place = coordinate_of(job, row);
    for (int64_t column = threadIdx.x; column < job.columns; column += kThreads) {
      const uint32_t feature = job.first_feature + static_cast<uint32_t>(column);
      const PhiloxBlock bits = philox4x32(detail::dropout_counter(place, feature), job.key);
      const uint32_t low = feature & 2 ? bits.w[1] : bits.w[0], high = feature & 2 ? bits.w[3] : bits.w[2];
      const uint32_t word = feature & 4 ? high : low;
      const float factor = factor_of(job, feature & 1 ? word >> 16 : word & 0xffffu);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        if (job.tensors[k].x == nullptr) continue;
        const T* x = static_cast<const T*>(job.tensors[k].x) + row * job.tensors[k].x_stride;
        static_cast<T*>(job.tensors[k].y)[row * job.columns + column] = narrow<T>(widen(x[column]) * factor);
      }
    }
  }
}

bool takes_vectors(const DropoutRows& job, int lanes) {
  bool fits = job.columns % lanes == 0 && job.first_feature % kDropoutGroup == 0;
  for (const DroppedRows& tensor : job.tensors) {
    const auto x = reinterpret_cast<uintptr_t>(tensor.x), y = reinterpret_cast<uintptr_t>(tensor.y);
    fits = fits && tensor.x_stride % lanes == 0 && x % 16 == 0 && y % 16 == 0;
  }
  return fits;
}

/// The job's rows from `first` on.
template <typename T>
DropoutRows from_row(DropoutRows job, int64_t first) {
  for (DroppedRows& tensor : job.tensors) {
    if (tensor.x == nullptr) continue;
    tensor.x = static_cast<const T*>(tensor.x) + first * tensor.x_stride;
    tensor.y = static_cast<T*>(tensor.y) + first * job.columns;
  }
  job.coordinates += first;
  return job;
}

template <typename T>
void drop(const DropoutRows& job, cudaStream_t stream) {
  if (takes_vectors(job, kLanes<T>)) {
    const int64_t vectors = job.columns / kLanes<T>;
    const auto kernel = job.tensors[1].x != nullptr ? drop_vectors<T, true> : drop_vectors<T, false>;
    for_slices(job.rows, vectors, [&](int64_t first, int64_t rows) {
      kernel<<<blocks_of(rows * vectors, kThreads), kThreads, 0, stream>>>(
          from_row<T>(job, first), Divider(static_cast<uint32_t>(vectors)),
          static_cast<uint32_t>(rows * vectors));
      check_launch("dropout");
    });
    return;
  }
  const int64_t grid = persistent_grid(drop_elements<T>, kThreads, job.rows);
  drop_elements<T><<<static_cast<unsigned>(grid), kThreads, 0, stream>>>(job);
  check_launch("dropout");
}

}  // namespace

void dropout(const DropoutRows& job, Element element, cudaStream_t stream) {
  if (element == Element::kBf16)
    drop<__nv_bfloat16>(job, stream);
  else
    drop<float>(job, stream);
}

}  // namespace apus::ops::kernels
