// The gated activation, forward and backward, each one pass. Forward reads gate and up and writes act;
// backward reads gate, up and d_act and writes both gradients. Memory bandwidth limits them: an exponential
// and a reciprocal an element hide behind it. Gate and up may lie beside each other in one row, or apart.
#include "ops/kernels/swiglu.h"

#include "ops/kernels/flat.cuh"
#include "ops/kernels/vector.cuh"

namespace apus::ops::kernels {
namespace {

constexpr int kThreads = 256;

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
__global__ void __launch_bounds__(kThreads)
    forward_pieces(SwigluForward job, Divider vectors, uint32_t count) {
  const uint32_t piece = blockIdx.x * kThreads + threadIdx.x;
  if (piece >= count) return;
  const auto [row, at] = place_of(piece, vectors);
  float g[kLanes<T>], u[kLanes<T>];
  const uint4 gate = load_vector(row_of<T>(job.gate, row), at), up = load_vector(row_of<T>(job.up, row), at);
  unpack<T>(gate, g);
  unpack<T>(up, u);
#pragma unroll
  for (int j = 0; j < kLanes<T>; ++j) g[j] = g[j] * sigmoid<T>(g[j]) * u[j];
  store_vector(row_of<T>(job.act, row), at, pack<T>(g));
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    backward_pieces(SwigluBackward job, Divider vectors, uint32_t count) {
  const uint32_t piece = blockIdx.x * kThreads + threadIdx.x;
  if (piece >= count) return;
  const auto [row, at] = place_of(piece, vectors);
  float g[kLanes<T>], u[kLanes<T>], d[kLanes<T>];
  const uint4 gate = load_vector(row_of<T>(job.gate, row), at), up = load_vector(row_of<T>(job.up, row), at),
              d_act = load_vector(row_of<T>(job.d_act, row), at);
  unpack<T>(gate, g);
  unpack<T>(up, u);
  unpack<T>(d_act, d);
#pragma unroll
  for (int j = 0; j < kLanes<T>; ++j) {
    const float s = sigmoid<T>(g[j]), silu = g[j] * s;
    // d silu / d g = s (1 + g (1 - s))
    g[j] = d[j] * u[j] * (s + silu * (1.0f - s));
    u[j] = d[j] * silu;
  }
  store_vector(row_of<T>(job.d_gate, row), at, pack<T>(g));
  store_vector(row_of<T>(job.d_up, row), at, pack<T>(u));
}

/// The same rows from `first` on.
template <typename T, typename Of>
Of from_row(Of rows, int64_t first) {
  rows.data = static_cast<T*>(rows.data) + first * rows.stride;
  return rows;
}

template <typename T>
void forward(const SwigluForward& job, cudaStream_t stream) {
  const int64_t vectors = job.columns / kLanes<T>;
  for_slices(job.rows, vectors, [&](int64_t first, int64_t rows) {
    const SwigluForward slice{.gate = from_row<const T>(job.gate, first),
                              .up = from_row<const T>(job.up, first),
                              .act = from_row<T>(job.act, first)};
    forward_pieces<T><<<blocks_of(rows * vectors, kThreads), kThreads, 0, stream>>>(
        slice, Divider(static_cast<uint32_t>(vectors)), static_cast<uint32_t>(rows * vectors));
    check_launch("swiglu_forward");
  });
}

template <typename T>
void backward(const SwigluBackward& job, cudaStream_t stream) {
  const int64_t vectors = job.columns / kLanes<T>;
  for_slices(job.rows, vectors, [&](int64_t first, int64_t rows) {
    const SwigluBackward slice{.gate = from_row<const T>(job.gate, first),
                               .up = from_row<const T>(job.up, first),
                               .d_act = from_row<const T>(job.d_act, first),
                               .d_gate = from_row<T>(job.d_gate, first),
                               .d_up = from_row<T>(job.d_up, first)};
    backward_pieces<T><<<blocks_of(rows * vectors, kThreads), kThreads, 0, stream>>>(
        slice, Divider(static_cast<uint32_t>(vectors)), static_cast<uint32_t>(rows * vectors));
    check_launch("swiglu_backward");
  });
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
