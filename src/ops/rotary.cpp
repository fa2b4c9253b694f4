#include "apus/ops/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "apus/base/error.h"
#include "apus/ops/rope_scaling.h"

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

}  // namespace

Rotated rotary(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& cos_TH,
               const at::Tensor& sin_TH) {
  APUS_CHECK(cos_TH.sizes() == sin_TH.sizes(), ShapeError, "rotary: cos is ", cos_TH.sizes(), ", sin is ",
             sin_TH.sizes());
  check_operand(q_TNH, cos_TH, "q");
  check_operand(k_TKH, cos_TH, "k");
  APUS_CHECK(cos_TH.size(1) % 2 == 0, ShapeError, "rotary: the head dim must be even, it is ",
             cos_TH.size(1));
  const at::Tensor cos_T1H = cos_TH.unsqueeze(1), sin_T1H = sin_TH.unsqueeze(1);
  return {rotate(q_TNH, cos_T1H, sin_T1H), rotate(k_TKH, cos_T1H, sin_T1H)};
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
