#include "apus/ops/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "apus/base/error.h"
#include "apus/ops/rope_scaling.h"
#include "ops/rotary_cuda.h"
#include "ops/twins.h"

namespace apus::ops {
namespace {

at::Tensor rotate(const at::Tensor& x_TNH, const at::Tensor& cos_T1H, const at::Tensor& sin_T1H) {
  const int64_t half = x_TNH.size(-1) / 2;
  const at::Tensor swapped_TNH = at::cat({-x_TNH.narrow(-1, half, half), x_TNH.narrow(-1, 0, half)}, -1);
  return x_TNH * cos_T1H + swapped_TNH * sin_T1H;
}

void check_operand(const at::Tensor& x, const at::Tensor& cos_TH, const char* name) {
  APUS_CHECK(x.dim() == 3 && cos_TH.dim() == 2 && x.size(0) == cos_TH.size(0) && x.size(2) == cos_TH.size(1),
             ShapeError, "rotary: ", name, " must be [T, heads, H] for tables [T, H]; ", name, " is ",
             x.sizes(), ", the tables are ", cos_TH.sizes());
  APUS_CHECK(x.scalar_type() == cos_TH.scalar_type(), ShapeError, "rotary: ", name, " is ", x.scalar_type(),
             " but the tables are ", cos_TH.scalar_type());
}

void check_tables(const at::Tensor& cos_TH, const at::Tensor& sin_TH) {
  APUS_CHECK(cos_TH.sizes() == sin_TH.sizes() && cos_TH.scalar_type() == sin_TH.scalar_type(), ShapeError,
             "rotary: cos is ", cos_TH.scalar_type(), " ", cos_TH.sizes(), ", sin is ", sin_TH.scalar_type(),
             " ", sin_TH.sizes());
}

void check_head_dim(int64_t head_dim) {
  APUS_CHECK(head_dim % 2 == 0, ShapeError, "rotary: the head dim must be even, it is ", head_dim);
}

void check_norm(const QkNorm& norm, const at::Tensor& qkv_TC, int64_t head_dim) {
  APUS_CHECK(norm.q_weight_H.defined() == norm.k_weight_H.defined(), ShapeError,
             "rotary_qkv: queries and keys are normed both or neither");
  if (!norm.q_weight_H.defined()) return;
  for (const at::Tensor& weight_H : {norm.q_weight_H, norm.k_weight_H}) {
    APUS_CHECK(
        weight_H.dim() == 1 && weight_H.size(0) == head_dim && weight_H.scalar_type() == qkv_TC.scalar_type(),
        ShapeError, "rotary_qkv: a norm's weight must be ", qkv_TC.scalar_type(), " [", head_dim, "], it is ",
        weight_H.scalar_type(), " ", weight_H.sizes());
  }
}

void check_qkv(const at::Tensor& qkv_TC, const QkvHeads& heads, const at::Tensor& cos_TH,
               const at::Tensor& sin_TH) {
  check_tables(cos_TH, sin_TH);
  check_head_dim(heads.head_dim);
  APUS_CHECK(heads.heads > 0 && heads.kv_heads > 0 && heads.head_dim > 0 && qkv_TC.dim() == 2 &&
                 qkv_TC.size(1) == heads.columns(),
             ShapeError, "rotary_qkv: rows of ", heads.heads, " query and 2 x ", heads.kv_heads,
             " key and value heads of ", heads.head_dim, " must be ", heads.columns(), " wide; qkv is ",
             qkv_TC.sizes());
  APUS_CHECK(cos_TH.dim() == 2 && cos_TH.size(0) == qkv_TC.size(0) && cos_TH.size(1) == heads.head_dim,
             ShapeError, "rotary_qkv: the tables must be [", qkv_TC.size(0), ", ", heads.head_dim,
             "], they are ", cos_TH.sizes());
  APUS_CHECK(qkv_TC.scalar_type() == cos_TH.scalar_type(), ShapeError, "rotary_qkv: qkv is ",
             qkv_TC.scalar_type(), " but the tables are ", cos_TH.scalar_type());
}

}  // namespace

Rotated twin::rotary(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& cos_TH,
                     const at::Tensor& sin_TH) {
  const at::Tensor cos_T1H = cos_TH.unsqueeze(1), sin_T1H = sin_TH.unsqueeze(1);
  return {rotate(q_TNH, cos_T1H, sin_T1H), rotate(k_TKH, cos_T1H, sin_T1H)};
}

Qkv twin::rotary_qkv(const at::Tensor& qkv_TC, const QkvHeads& heads, const at::Tensor& cos_TH,
                     const at::Tensor& sin_TH, const QkNorm& norm) {
  const int64_t q_width = heads.heads * heads.head_dim, k_width = heads.kv_heads * heads.head_dim;
  const auto part = [&](int64_t first, int64_t width) {
    return qkv_TC.narrow(1, first, width).unflatten(1, {-1, heads.head_dim});
  };
  at::Tensor q_TNH = part(0, q_width), k_TKH = part(q_width, k_width);
  if (norm.q_weight_H.defined()) {
    q_TNH = twin::rms_norm(q_TNH, norm.q_weight_H, norm.eps);
    k_TKH = twin::rms_norm(k_TKH, norm.k_weight_H, norm.eps);
  }
  Rotated turned = twin::rotary(q_TNH, k_TKH, cos_TH, sin_TH);
  return {std::move(turned.q_TNH), std::move(turned.k_TKH), part(q_width + k_width, k_width).contiguous()};
}

Rotated rotary(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& cos_TH,
               const at::Tensor& sin_TH) {
  check_tables(cos_TH, sin_TH);
  check_operand(q_TNH, cos_TH, "q");
  check_operand(k_TKH, cos_TH, "k");
  check_head_dim(cos_TH.size(1));
  if (cuda::takes_heads(q_TNH, cos_TH.size(1), /*normed=*/false))
    return cuda::rotary(q_TNH, k_TKH, cos_TH, sin_TH);
  return twin::rotary(q_TNH, k_TKH, cos_TH, sin_TH);
}

Qkv rotary_qkv(const at::Tensor& qkv_TC, const QkvHeads& heads, const at::Tensor& cos_TH,
               const at::Tensor& sin_TH, const QkNorm& norm, RowRoom grad_room) {
  check_qkv(qkv_TC, heads, cos_TH, sin_TH);
  check_norm(norm, qkv_TC, heads.head_dim);
  APUS_CHECK(grad_room.before >= 0 && grad_room.after >= 0, ShapeError,
             "rotary_qkv: the gradient's room must not be negative");
  if (cuda::takes_heads(qkv_TC, heads.head_dim, norm.q_weight_H.defined()))
    return cuda::rotary_qkv(qkv_TC, heads, cos_TH, sin_TH, norm, grad_room);
  return twin::rotary_qkv(qkv_TC, heads, cos_TH, sin_TH, norm);
}

RotaryTables rotary_tables(const at::Tensor& positions_T, const at::Tensor& inv_freq, double attention_factor,
                           at::ScalarType dtype) {
  APUS_CHECK(positions_T.dim() == 1, ShapeError, "rotary_tables: positions must be [T], they are ",
             positions_T.sizes());
  const bool shared = inv_freq.dim() == 1;
  APUS_CHECK(shared || (inv_freq.dim() == 2 && inv_freq.size(0) == positions_T.size(0)), ShapeError,
             "rotary_tables: inv_freq must be [H/2] or [T, H/2] with T ", positions_T.size(0), ", it is ",
             inv_freq.sizes());
  APUS_CHECK(inv_freq.scalar_type() == at::kFloat, ShapeError, "rotary_tables: inv_freq must be fp32, it is ",
             inv_freq.scalar_type());
  const at::Tensor frequencies = inv_freq.to(positions_T.device());
  const at::Tensor half =
      positions_T.to(at::kFloat).unsqueeze(1) * (shared ? frequencies.unsqueeze(0) : frequencies);
  const at::Tensor angles_TH = at::cat({half, half}, 1);
  if (attention_factor == 1.0) return {angles_TH.cos().to(dtype), angles_TH.sin().to(dtype)};
  return {(angles_TH.cos() * attention_factor).to(dtype), (angles_TH.sin() * attention_factor).to(dtype)};
}

RotaryTables rotary_tables(const at::Tensor& positions_T, int64_t head_dim, double theta,
                           at::ScalarType dtype) {
  APUS_CHECK(head_dim > 0 && head_dim % 2 == 0, ShapeError,
             "rotary_tables: the head dim must be even and positive, it is ", head_dim);
  return rotary_tables(positions_T, rope_frequencies({}, {.head_dim = head_dim, .theta = theta}).inv_freq,
                       1.0, dtype);
}

}  // namespace apus::ops
