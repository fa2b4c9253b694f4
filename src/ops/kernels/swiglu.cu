// The gated activation, forward and backward, each one pass. Forward reads gate and up and writes act;
// backward reads gate, up and d_act and writes both gradients. Memory bandwidth limits them: an exponential
// and a reciprocal an element hide behind it. Gate and up may lie beside each other in one row, or apart.
#include "ops/kernels/swiglu.h"

#include "ops/kernels/column_tiles.cuh"
#include "ops/kernels/vector.cuh"

namespace apus::ops::kernels {
namespace {

/// 1 / (1 + exp(-z)); 0 and 1 far out, NaN stays.
template <typename T>
__device__ __forceinline__ float sigmoid(float z) {
  if constexpr (sizeof(T) == 4) {
    return 1.0f / (1.0f + expf(-z));
  } else {
    return __fdividef(1.0f, 1.0f + __expf(-z));
  }
}

template <typename T>
__device__ __forceinline__ const T* row_of(const Rows& rows, int64_t row) {
  return static_cast<const T*>(rows.data) + row * rows.stride;
}
template <typename T>
__device__ __forceinline__ T* row_of(const OutRows& rows, int64_t row) {
  return static_cast<T*>(rows.data) + row * rows.stride;
}

template <typename T>
__global__ void __launch_bounds__(kTileThreads) forward_rows(SwigluForward job, int tiles) {
  const int vectors = static_cast<int>(job.columns / kLanes<T>);
  for_tile(job.rows, tiles, [&](int64_t row, int first) {
    const T *gates = row_of<T>(job.gate, row), *ups = row_of<T>(job.up, row);
    T* acts = row_of<T>(job.act, row);
    uint4 gate[kTileVectors], up[kTileVectors];
#pragma unroll
    for (int i = 0; i < kTileVectors; ++i) {
      const int at = first + i * static_cast<int>(blockDim.x);
      if (at >= vectors) continue;
      gate[i] = load_vector(gates, at);
      up[i] = load_vector(ups, at);
    }
#pragma unroll
    for (int i = 0; i < kTileVectors; ++i) {
      const int at = first + i * static_cast<int>(blockDim.x);
      if (at >= vectors) continue;
      float g[kLanes<T>], u[kLanes<T>];
      unpack<T>(gate[i], g);
      unpack<T>(up[i], u);
#pragma unroll
      for (int j = 0; j < kLanes<T>; ++j) g[j] = g[j] * sigmoid<T>(g[j]) * u[j];
      store_vector(acts, at, pack<T>(g));
    }
  });
}

template <typename T>
__global__ void __launch_bounds__(kTileThreads) backward_rows(SwigluBackward job, int tiles) {
  const int vectors = static_cast<int>(job.columns / kLanes<T>);
  for_tile(job.rows, tiles, [&](int64_t row, int first) {
    const T *gates = row_of<T>(job.gate, row), *ups = row_of<T>(job.up, row);
    const T* d_acts = row_of<T>(job.d_act, row);
    T *d_gates = row_of<T>(job.d_gate, row), *d_ups = row_of<T>(job.d_up, row);
    uint4 gate[kTileVectors], up[kTileVectors], d_act[kTileVectors];
#pragma unroll
    for (int i = 0; i < kTileVectors; ++i) {
      const int at = first + i * static_cast<int>(blockDim.x);
      if (at >= vectors) continue;
      gate[i] = load_vector(gates, at);
      up[i] = load_vector(ups, at);
      d_act[i] = load_vector(d_acts, at);
    }
#pragma unroll
    for (int i = 0; i < kTileVectors; ++i) {
      const int at = first + i * static_cast<int>(blockDim.x);
      if (at >= vectors) continue;
      float g[kLanes<T>], u[kLanes<T>], d[kLanes<T>];
      unpack<T>(gate[i], g);
      unpack<T>(up[i], u);
      unpack<T>(d_act[i], d);
#pragma unroll
      for (int j = 0; j < kLanes<T>; ++j) {
        const float s = sigmoid<T>(g[j]), silu = g[j] * s;
        // d silu / d g = s (1 + g (1 - s))
        g[j] = d[j] * u[j] * (s + silu * (1.0f - s));
        u[j] = d[j] * silu;
      }
      store_vector(d_gates, at, pack<T>(g));
      store_vector(d_ups, at, pack<T>(u));
    }
  });
}

template <typename T>
void forward(const SwigluForward& job, cudaStream_t stream) {
  const Tiles tiles = tiles_of(forward_rows<T>, job.rows, job.columns / kLanes<T>);
  forward_rows<T><<<tiles.blocks, tiles.threads, 0, stream>>>(job, tiles.count);
  check_launch("swiglu_forward");
}

template <typename T>
void backward(const SwigluBackward& job, cudaStream_t stream) {
  const Tiles tiles = tiles_of(backward_rows<T>, job.rows, job.columns / kLanes<T>);
  backward_rows<T><<<tiles.blocks, tiles.threads, 0, stream>>>(job, tiles.count);
  check_launch("swiglu_backward");
}

}  // namespace

void swiglu_forward(const SwigluForward& job, Element element, cudaStream_t stream) {
  if (element == Element::kBf16)
    forward<__nv_bfloat16>(job, stream);
  else
    forward<float>(job, stream);
}

void swiglu_backward(const SwigluBackward& job, Element element, cudaStream_t stream) {
  if (element == Element::kBf16)
    backward<__nv_bfloat16>(job, stream);
  else
    backward<float>(job, stream);
}

}  // namespace apus::ops::kernels
