#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "apus/base/api.h"

namespace apus::ops {

/// How the T rows split into sequences; the same two layouts as nn::RowLayout.
struct APUS_API AttentionRows {
  std::span<const int64_t> lengths;  ///< [B] tokens of each sequence; read during the call only
  int64_t padded_length = 0;  ///< rows a sequence takes, its tokens first; 0 = packed, T = sum of lengths
};

/// Causal self-attention inside each sequence, with fewer key/value heads than query heads allowed.
/// Maths:       y[t] = sum over s <= t in t's sequence of softmax_s(q[t].k[s] / sqrt(H)) v[s];
///              query head n reads key/value head n / (N / K).
/// Shapes:      q [T, N, H], k and v [T, K, H] with N a multiple of K -> [T, N, H].
/// Dtypes:      bf16 | fp32, softmax in fp32; out = in.
/// Padding lies behind the tokens, so no real row sees it; what padded rows hold afterwards is unspecified
/// but finite. Sequences of length 0 are allowed.
/// Memory:      O(T N H) with libtorch's flash kernels.
/// Determinism: run-to-run on CPU.
/// Throws:      ShapeError if heads, dims or the number of rows do not fit.
APUS_API at::Tensor attention(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& v_TKH,
                              const AttentionRows& rows);

}  // namespace apus::ops
