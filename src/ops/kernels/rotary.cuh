#pragma once

#include <algorithm>

#include "ops/kernels/flat.cuh"
#include "ops/kernels/rotary.h"
#include "ops/kernels/vector.cuh"

// What the kernels that turn heads share. A thread holds piece `threadIdx.x` of both halves of a head, 16
// bytes each, and so all that the rotation of these elements needs; `threadIdx.y` counts heads.
namespace apus::ops::kernels {

/// Both halves of this thread's piece of a head.
template <typename T>
struct Halves {
  uint4 low, high;

  __device__ __forceinline__ void load(const T* head, int half) {
    low = load_vector(head, threadIdx.x);
    high = load_vector(head + half, threadIdx.x);
  }
  __device__ __forceinline__ void store(T* head, int half) const {
    store_vector(head, threadIdx.x, low);
    store_vector(head + half, threadIdx.x, high);
  }
  __device__ __forceinline__ void keep_packed() {
    kernels::keep_packed(low);
    kernels::keep_packed(high);
  }
  __device__ __forceinline__ void clear() { low = high = make_uint4(0, 0, 0, 0); }
  __device__ __forceinline__ void widen(float (&a)[kLanes<T>], float (&b)[kLanes<T>]) const {
    unpack<T>(low, a);
    unpack<T>(high, b);
  }
};

/// The angles of this thread's piece in one row.
template <typename T>
struct Angles {
  Halves<T> cos, sin;

  __device__ __forceinline__ void load(const RotaryRows& job, int64_t row) {
    cos.load(static_cast<const T*>(job.cos) + row * job.head_dim, job.head_dim / 2);
    sin.load(static_cast<const T*>(job.sin) + row * job.head_dim, job.head_dim / 2);
  }
  __device__ __forceinline__ void keep_packed() {
    cos.keep_packed();
    sin.keep_packed();
  }
  /// Turns the pairs (a, b) of the first and the second half; transposed: back.
  template <bool kTransposed>
  __device__ __forceinline__ void turn(float (&a)[kLanes<T>], float (&b)[kLanes<T>]) const {
    float cos_low[kLanes<T>], cos_high[kLanes<T>], sin_low[kLanes<T>], sin_high[kLanes<T>];
    cos.widen(cos_low, cos_high);
    sin.widen(sin_low, sin_high);
#pragma unroll
    for (int j = 0; j < kLanes<T>; ++j) {
      const float first = a[j], second = b[j];
      if constexpr (kTransposed) {
        a[j] = first * cos_low[j] + second * sin_high[j];
        b[j] = second * cos_high[j] - first * sin_low[j];
      } else {
        a[j] = first * cos_low[j] - second * sin_low[j];
        b[j] = second * cos_high[j] + first * sin_high[j];
      }
    }
  }
};

/// Where head `index` of [q | k | v] lies in a row.
template <typename T>
struct HeadPlace {
  const T* in;
  T* out;
  bool turns;

  __device__ __forceinline__ HeadPlace(const RotaryRows& job, int64_t row, int index) {
    const bool is_q = index < job.q.heads, is_k = !is_q && index < job.q.heads + job.k.heads;
    const void* from = is_q ? job.q.in : is_k ? job.k.in : job.v.in;
    void* to = is_q ? job.q.out : is_k ? job.k.out : job.v.out;
    const int64_t in_stride = is_q ? job.q.in_stride : is_k ? job.k.in_stride : job.v.in_stride;
    const int64_t out_stride = is_q ? job.q.out_stride : is_k ? job.k.out_stride : job.v.out_stride;
    const int head = is_q ? index : is_k ? index - job.q.heads : index - job.q.heads - job.k.heads;
    const int64_t shift = int64_t{head} * job.head_dim;
    in = from == nullptr ? nullptr : static_cast<const T*>(from) + row * in_stride + shift;
    out = static_cast<T*>(to) + row * out_stride + shift;
    turns = is_q || is_k;
  }
};

inline int heads_of(const RotaryRows& job) {
  return job.q.heads + job.k.heads + job.v.heads;
}

/// As many heads as `threads` hold: x counts the pieces of a head, y heads.
template <typename T>
dim3 heads_block(const RotaryRows& job, int threads) {
  const int pieces = job.head_dim / (2 * kLanes<T>);
  return dim3(static_cast<unsigned>(pieces), static_cast<unsigned>(std::max(1, threads / pieces)));
}

}  // namespace apus::ops::kernels
