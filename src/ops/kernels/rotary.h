#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/kernels/element.h"

namespace apus::ops::kernels {

/// Heads beside each other in rows, read at one place and written at another. Strides are in elements;
/// strides, head sizes' halves and pointers are multiples of 16 bytes.
struct HeadRows {
  const void* in = nullptr;  ///< null = zeros
  int64_t in_stride = 0;
  void* out = nullptr;
  int64_t out_stride = 0;
  int heads = 0;
};

/// Rows of queries and keys, which turn, and of values, which move.
struct RotaryRows {
  HeadRows q, k, v;
  const void* cos = nullptr;  ///< [rows, head_dim], dense
  const void* sin = nullptr;
  int64_t rows = 0;
  int head_dim = 0;
};

/// Whether a head size fits whole 16-byte pieces of both halves and the kernels' blocks.
constexpr bool rotary_takes(int64_t head_dim, Element element) {
  const int64_t piece = 2 * elements_a_vector(element);
  return head_dim > 0 && head_dim % piece == 0 && head_dim / piece <= 32;
}

/// out = x * cos + swap(x) * sin for q and k, swap(x) = [-x second half, x first half]; out = in for v.
/// rows > 0.
void rotary_forward(const RotaryRows& job, Element element, cudaStream_t stream);
/// The same with the rotation transposed: gradients from q, k, v to rows.
void rotary_backward(const RotaryRows& job, Element element, cudaStream_t stream);

/// Norms of queries' and keys' heads before they turn.
struct HeadNorm {
  const void* q_weight = nullptr;  ///< [head_dim]
  const void* k_weight = nullptr;
  float* scale = nullptr;  ///< [rows, q heads + k heads]: 1 / rms, written by forward, read by backward
  float eps = 0.0f;
};

/// Whether the kernels with norms take a head size: the threads of a head must fill a shuffle's lanes.
constexpr bool normed_rotary_takes(int64_t head_dim, Element element) {
  const int64_t pairs = head_dim / (2 * elements_a_vector(element));
  return rotary_takes(head_dim, element) && (pairs & (pairs - 1)) == 0;
}

void normed_rotary_forward(const RotaryRows& job, const HeadNorm& norm, Element element, cudaStream_t stream);

/// What backward reads beside the gradients.
struct HeadNormBackward {
  HeadNorm norm;
  const void* q = nullptr;  ///< queries before their norm, rows at `stride`
  const void* k = nullptr;
  int64_t stride = 0;
  float* partials = nullptr;  ///< [normed_rotary_partials(...), 2 * head_dim]; null = not wanted
};

/// How many rows of partial sums of [d_q_weight, d_k_weight] normed_rotary_backward writes.
int64_t normed_rotary_partials(const RotaryRows& job, Element element);

void normed_rotary_backward(const RotaryRows& job, const HeadNormBackward& norm, Element element,
                            cudaStream_t stream);

}  // namespace apus::ops::kernels
