#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/kernels/element.h"

namespace apus::ops::kernels {

/// Logits of a chunk of rows and what is made of them.
struct LogProbRows {
  void* logits = nullptr;  ///< [rows, stride] of bf16 or fp32, 16-byte aligned; overwritten with the gradient
  int64_t stride = 0;  ///< elements from row to row; a multiple of 16 bytes, at least vocab rounded up to one
  int64_t rows = 0;
  int64_t vocab = 0;  ///< below 2^31 - 2^16
  Element element = Element::kBf16;
  bool makes_gradient = false;       ///< d logp / d logits = (column == target) - softmax, times the scale
  const int64_t* targets = nullptr;  ///< [rows]
  const float* scale = nullptr;      ///< [rows]; null = 1
  float* log_probs = nullptr;        ///< [rows], written; null: not wanted
  bool* is_argmax = nullptr;         ///< [rows], written; null: not wanted
};

/// A target outside [0, vocab) gives NaN log-probability and NaN gradient, and is no argmax.
void launch_log_prob_rows(const LogProbRows& rows, cudaStream_t stream);

}  // namespace apus::ops::kernels
