// Dropout by Philox at each row's coordinate: reads x, writes y, and draws the mask, which is never stored.
// One block of Philox, ten rounds of two wide products, serves four features, so that integer arithmetic
// limits it as much as memory does; two tensors behind one mask share the drawing.
#include "ops/kernels/dropout.h"

#include <cstdint>

#include "apus/base/philox.h"
#include "ops/kernels/column_tiles.cuh"
#include "ops/kernels/vector.cuh"

namespace apus::ops::kernels {
namespace {

__device__ __forceinline__ SampleCoordinate place_of(const DropoutRows& job, int64_t row) {
  const uint4 at = __ldg(job.coordinates + row);
  return {.epoch = job.epoch, .ordinal = at.x, .side = at.y, .position = at.z};
}

__device__ __forceinline__ float factor_of(const DropoutRows& job, uint32_t word) {
  return (word >> 8) >= job.threshold ? job.scale : 0.0f;
}

/// What kept features are multiplied by, for the vector `at` of a row.
template <typename T>
__device__ __forceinline__ void draw(const DropoutRows& job, const SampleCoordinate& place, int at,
                                     float (&factors)[kLanes<T>]) {
#pragma unroll
  for (int j = 0; j < kLanes<T>; j += 4) {
    const uint32_t feature = job.first_feature + static_cast<uint32_t>(at) * kLanes<T> + j;
    const PhiloxBlock bits = philox4x32(sample_counter(place, feature), job.key);
#pragma unroll
    for (int k = 0; k < 4; ++k) factors[j + k] = factor_of(job, bits.w[k]);
  }
}

template <typename T>
__global__ void __launch_bounds__(kTileThreads) drop_vectors(DropoutRows job, int tiles) {
  const int vectors = static_cast<int>(job.columns / kLanes<T>);
  const bool has_second = job.tensors[1].x != nullptr;
  for_tile(job.rows, tiles, [&](int64_t row, int first) {
    const T* x = static_cast<const T*>(job.tensors[0].x) + row * job.tensors[0].x_stride;
    const T* x2 = static_cast<const T*>(job.tensors[1].x) + row * job.tensors[1].x_stride;
    uint4 raw[kTileVectors], raw2[kTileVectors];
#pragma unroll
    for (int i = 0; i < kTileVectors; ++i) {
      const int at = first + i * static_cast<int>(blockDim.x);
      if (at >= vectors) continue;
      raw[i] = load_vector(x, at);
      if (has_second) raw2[i] = load_vector(x2, at);
    }
    const SampleCoordinate place = place_of(job, row);
#pragma unroll
    for (int i = 0; i < kTileVectors; ++i) {
      const int at = first + i * static_cast<int>(blockDim.x);
      if (at >= vectors) continue;
      float factors[kLanes<T>], values[kLanes<T>];
      draw<T>(job, place, at, factors);
      unpack<T>(raw[i], values);
#pragma unroll
      for (int j = 0; j < kLanes<T>; ++j) values[j] *= factors[j];
      store_vector(static_cast<T*>(job.tensors[0].y) + row * job.columns, at, pack<T>(values));
      if (!has_second) continue;
      unpack<T>(raw2[i], values);
#pragma unroll
      for (int j = 0; j < kLanes<T>; ++j) values[j] *= factors[j];
      store_vector(static_cast<T*>(job.tensors[1].y) + row * job.columns, at, pack<T>(values));
    }
  });
}

template <typename T>
__global__ void __launch_bounds__(kTileThreads) drop_elements(DropoutRows job) {
  for (int64_t row = blockIdx.x; row < job.rows; row += gridDim.x) {
    const SampleCoordinate place = place_of(job, row);
    for (int64_t column = threadIdx.x; column < job.columns; column += kTileThreads) {
      const uint32_t feature = job.first_feature + static_cast<uint32_t>(column);
      const PhiloxBlock bits = philox4x32(sample_counter(place, feature), job.key);
      const uint32_t words[4] = {bits.w[0], bits.w[1], bits.w[2], bits.w[3]};
      const uint32_t low = feature & 1 ? words[1] : words[0], high = feature & 1 ? words[3] : words[2];
      const float factor = factor_of(job, feature & 2 ? high : low);
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
  bool fits = job.columns % lanes == 0 && job.first_feature % 4 == 0;
  for (const DroppedRows& tensor : job.tensors) {
    const auto x = reinterpret_cast<uintptr_t>(tensor.x), y = reinterpret_cast<uintptr_t>(tensor.y);
    fits = fits && tensor.x_stride % lanes == 0 && x % 16 == 0 && y % 16 == 0;
  }
  return fits;
}

template <typename T>
void drop(const DropoutRows& job, cudaStream_t stream) {
  if (takes_vectors(job, kLanes<T>)) {
    const Tiles tiles = tiles_of(drop_vectors<T>, job.rows, job.columns / kLanes<T>);
    drop_vectors<T><<<tiles.blocks, tiles.threads, 0, stream>>>(job, tiles.count);
  } else {
    const int64_t grid = persistent_grid(drop_elements<T>, kTileThreads, job.rows);
    drop_elements<T><<<static_cast<unsigned>(grid), kTileThreads, 0, stream>>>(job);
  }
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
