#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/kernels/element.h"

namespace apus::ops::kernels {

/// Rows of a table. Columns are a multiple of a vector, pointers aligned to 16 bytes.
struct EmbeddingForward {
  const int64_t* tokens = nullptr;  ///< [rows]
  const void* table = nullptr;      ///< [vocab, columns], dense
  void* out = nullptr;              ///< [rows, columns], dense
  int64_t rows = 0;
  int64_t vocab = 0;
  int64_t columns = 0;
};

/// out[t] = table[tokens[t]]; NaN for a token outside the table. rows > 0.
void embedding_forward(const EmbeddingForward& job, Element element, cudaStream_t stream);

/// Sorted positions that one block adds up.
inline constexpr int64_t kEmbeddingSegment = 16;

/// The table's gradient.
struct EmbeddingBackward {
  const int32_t* tokens = nullptr;     ///< [rows], ascending
  const int64_t* positions = nullptr;  ///< [rows], the row of dy that each one is for
  const void* dy = nullptr;
  int64_t dy_stride = 0;
  void* grad = nullptr;       ///< [vocab, columns], dense; added to
  bool is_fresh = false;      ///< rows of grad that have tokens hold nothing: they are written, not added to
  float* partials = nullptr;  ///< [2 * ceil(rows / kEmbeddingSegment), columns], for tokens of many rows
  int64_t rows = 0;
  int64_t vocab = 0;
  int64_t columns = 0;
};

/// grad[token] += the sum over its rows of dy, in fp32 and in the order given, rounded once; tokens outside
/// the table are left out. dy is of `element`, grad of `grad_element`, at least as wide. rows > 0.
void embedding_backward(const EmbeddingBackward& job, Element element, Element grad_element,
                        cudaStream_t stream);

}  // namespace apus::ops::kernels
