#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "apus/base/api.h"
#include "apus/ops/row_room.h"

namespace apus::ops {

/// Rotated queries and keys.
struct APUS_API Rotated {
  at::Tensor q_TNH;
  at::Tensor k_TKH;
};

/// Rotary position embedding in the rotate-half pairing: element i turns with element i + H/2.
/// Maths:       y = x * cos + concat(-x[H/2:], x[:H/2]) * sin, for each row and head.
/// Shapes:      q [T, N, H], k [T, K, H], cos and sin [T, H] (both halves filled) -> as q and k.
/// Dtypes:      bf16 | fp32; tables in the dtype of q and k.
/// Throws:      ShapeError if H is odd or the tables do not fit.
/// Source:      Su et al., "RoFormer", 2021; pairing and rounding as Hugging Face's Llama and Qwen2.
APUS_API Rotated rotary(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& cos_TH,
                        const at::Tensor& sin_TH);

/// How the columns of a fused query, key and value projection split: [q | k | v], heads one after another.
struct APUS_API QkvHeads {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;

  /// C, the width of a row.
  int64_t columns() const { return (heads + 2 * kv_heads) * head_dim; }
};

/// Queries, keys and values as attention reads them: each dense.
struct APUS_API Qkv {
  at::Tensor q_TNH;
  at::Tensor k_TKH;
  at::Tensor v_TKH;
};

/// The norms of queries and keys that some models put before the rotation; undefined weights: none.
struct APUS_API QkNorm {
  at::Tensor q_weight_H;
  at::Tensor k_weight_H;
  double eps = 1e-6;
};

/// Splits a fused projection's rows into heads, norms queries and keys if asked, and turns them; backward
/// joins the three gradients into rows again.
/// Maths:       q = rotate(norm(qkv[:, q])), k = rotate(norm(qkv[:, k])), v = qkv[:, v]; rotate as rotary,
///              norm as rms_norm over each head.
/// Shapes:      qkv [T, (N + 2K) H], rows may be strided; cos, sin [T, H] -> q [T, N, H], k, v [T, K, H].
/// Dtypes:      bf16 | fp32, weights and tables in it; on a GPU fp32 inside, rounded once.
/// Memory:      keeps cos and sin; with norms also qkv, by reference. `grad_room` lies beside the rows of
///              qkv's gradient: a wish, which kernels grant and the twin does not.
/// Determinism: bitwise, dw included.
/// Throws:      ShapeError if sizes or dtypes do not fit, or one norm weight is defined without the other.
APUS_API Qkv rotary_qkv(const at::Tensor& qkv_TC, const QkvHeads& heads, const at::Tensor& cos_TH,
                        const at::Tensor& sin_TH, const QkNorm& norm = {}, RowRoom grad_room = {});

/// Cosines and sines of the rotation angles for each row.
struct APUS_API RotaryTables {
  at::Tensor cos_TH;
  at::Tensor sin_TH;
};

/// The tables for given frequencies: angle(t, i) = position[t] * inv_freq[i], for i below H/2, repeated; cos
/// and sin times `attention_factor`.
/// Shapes:      positions int64 [T]; inv_freq fp32 [H/2], or [T, H/2] where rows differ -> both [T, H].
/// Dtypes:      computed in fp32, then rounded to `dtype`; on the device of `positions`.
/// Throws:      ShapeError if inv_freq has another shape or dtype.
APUS_API RotaryTables rotary_tables(const at::Tensor& positions_T, const at::Tensor& inv_freq,
                                    double attention_factor, at::ScalarType dtype);

/// The tables for the default rule: angle(t, i) = position[t] * theta^(-2i/H), for i below H/2, repeated.
/// Other rules: rope_scaling.h.
/// Shapes:      positions int64 [T] -> both [T, H].
/// Dtypes:      computed in fp32, then rounded to `dtype`; on the device of `positions`.
APUS_API RotaryTables rotary_tables(const at::Tensor& positions_T, int64_t head_dim, double theta,
                                    at::ScalarType dtype);

}  // namespace apus::ops
