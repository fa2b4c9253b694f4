#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>

#include "apus/base/api.h"
#include "apus/ops/row_room.h"

namespace apus::ops {

class DeviceRows;

/// How the T rows split into sequences; the same two layouts as nn::RowLayout.
struct APUS_API AttentionRows {
  std::span<const int64_t> lengths;  ///< [B] tokens of each sequence; read during the call only
  int64_t padded_length = 0;  ///< rows a sequence takes, its tokens first; 0 = packed, T = sum of lengths
  /// The same split on a GPU, made once a micro-batch; null on the CPU. On a GPU without it each call makes
  /// its own and does without plans: right, but slower.
  std::shared_ptr<const DeviceRows> device = nullptr;
};

/// Causal self-attention inside each sequence, with fewer key/value heads than query heads allowed.
/// Maths:       y[t] = sum over s <= t in t's sequence of softmax_s(q[t].k[s] / sqrt(H)) v[s];
///              query head n reads key/value head n / (N / K).
/// Shapes:      q [T, N, H], k and v [T, K, H] with N a multiple of K -> [T, N, H]. On a GPU the rows of bf16
///              and fp16, flattened to [T, N H], have out_room beside them; others are dense (ask has_room).
/// Dtypes:      bf16 | fp16 | fp32, softmax in fp32; out = in.
/// Padding lies behind the tokens, so no real row sees it; what padded rows hold afterwards is unspecified
/// but finite. Sequences of length 0 are allowed. The gradient of a padded row must be 0, and padded rows get
/// finite gradients.
/// On a GPU: bf16 and fp16 of a head size up to 256 that is a multiple of 8 run as one kernel over all
/// sequences: cuDNN's, for bf16 where `rows.device` has plans and one builds, else FlashAttention-2; anything
/// else as on the CPU.
/// q, k and v are read in place where they are dense, and copied where not.
/// Stream:      the current stream; the host blocks only while a plan is built.
/// Memory:      CPU: O(T N H). GPU: the result, T N floats kept for backward; there the gradients and
///              12 N H bytes a row, up to 4 GiB more with at::globalContext().deterministicAlgorithms().
/// Determinism: run-to-run on CPU. On a GPU the result, dk and dv are bitwise repeatable, dq only while
///              at::globalContext().deterministicAlgorithms() holds at the forward call.
/// Throws:      ShapeError if heads, dims or the number of rows do not fit; NotSupported for a second
///              derivative on a GPU.
APUS_API at::Tensor attention(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& v_TKH,
                              const AttentionRows& rows, RowRoom out_room = {});

}  // namespace apus::ops
