#include "apus/ops/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/pow.h>

#include "apus/base/error.h"

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

RotaryTables rotary_tables(const at::Tensor& positions_T, int64_t head_dim, double theta,
                           at::ScalarType dtype) {
  APUS_CHECK(positions_T.dim() == 1, ShapeError, "rotary_tables: positions must be [T], they are ",
             positions_T.sizes());
  APUS_CHECK(head_dim > 0 && head_dim % 2 == 0, ShapeError,
             "rotary_tables: the head dim must be even and positive, it is ", head_dim);
  const auto fp32 = at::TensorOptions().dtype(at::kFloat).device(positions_T.device());
  const at::Tensor exponents = at::arange(0, head_dim, 2, fp32) / static_cast<double>(head_dim);
  const at::Tensor frequencies = at::pow(theta, exponents).reciprocal();
  const at::Tensor half = positions_T.to(at::kFloat).unsqueeze(1) * frequencies.unsqueeze(0);
  const at::Tensor angles_TH = at::cat({half, half}, 1);
  return {angles_TH.cos().to(dtype), angles_TH.sin().to(dtype)};
}

}  // namespace apus::ops
