#include "ops/gemm.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>

#include "apus/base/error.h"

namespace apus::ops {
namespace {

void check_matrix(const at::Tensor& x, const char* name) {
  APUS_CHECK(x.defined() && x.dim() == 2, ShapeError, "gemm: ", name, " must be a matrix");
  APUS_CHECK(x.stride(1) == 1 || x.size(1) <= 1, ShapeError, "gemm: the rows of ", name,
             " must be contiguous; its sizes are ", x.sizes(), ", its strides ", x.strides());
}

void check_inner(const Gemm& g, int64_t of_a, int64_t of_b) {
  APUS_CHECK(of_a == of_b, ShapeError, "gemm: A is ", g.a.sizes(), " and B is ", g.b.sizes(),
             "; the dims that are summed over are ", of_a, " and ", of_b);
}

void check_like_result(const at::Tensor& x, const at::Tensor& d, at::IntArrayRef sizes, const char* name) {
  APUS_CHECK(x.sizes() == sizes && x.scalar_type() == d.scalar_type(), ShapeError, "gemm: ", name, " is ",
             x.scalar_type(), " ", x.sizes(), ", expected ", d.scalar_type(), " ", sizes);
}

void check(const Gemm& g) {
  check_matrix(g.a, "A");
  check_matrix(g.b, "B");
  check_matrix(g.d, "D");
  const bool a_turned = g.form == GemmForm::kTn, b_turned = g.form == GemmForm::kNt;
  const int64_t m = g.a.size(a_turned ? 1 : 0), n = g.b.size(b_turned ? 0 : 1);
  check_inner(g, g.a.size(a_turned ? 0 : 1), g.b.size(b_turned ? 1 : 0));
  APUS_CHECK(g.d.size(0) == m && g.d.size(1) == n, ShapeError, "gemm: D is ", g.d.sizes(), ", expected [", m,
             ", ", n, "]");
  APUS_CHECK(g.a.scalar_type() == g.b.scalar_type(), ShapeError, "gemm: A is ", g.a.scalar_type(),
             " but B is ", g.b.scalar_type());
  APUS_CHECK(g.d.scalar_type() == g.a.scalar_type() || g.d.scalar_type() == at::kFloat, ShapeError,
             "gemm: D is ", g.d.scalar_type(), ", expected ", g.a.scalar_type(), " or float");
  if (g.c.defined()) {
    check_matrix(g.c, "C");
    check_like_result(g.c, g.d, g.d.sizes(), "C");
  }
  if (g.bias_N.defined()) check_like_result(g.bias_N, g.d, {n}, "the bias");
}

}  // namespace

void gemm(const Gemm& product) {
  check(product);
  if (product.d.numel() == 0) return;
  if (product.d.is_cuda() && cuda::lt_gemm(product)) return;
  gemm_twin(product);
}

void gemm_twin(const Gemm& g) {
  const at::NoGradGuard no_grad;
  const at::ScalarType type = g.d.scalar_type();
  const at::Tensor a = g.form == GemmForm::kTn ? g.a.t() : g.a, b = g.form == GemmForm::kNt ? g.b.t() : g.b;
  at::Tensor result = at::mm(a.to(type), b.to(type));
  if (g.alpha != 1.0 || g.beta != 0.0 || g.bias_N.defined()) result = result.to(at::kFloat) * g.alpha;
  if (g.beta != 0.0) result = result + (g.c.defined() ? g.c : g.d).to(at::kFloat) * g.beta;
  if (g.bias_N.defined()) result = result + g.bias_N.to(at::kFloat);
  // To the tape, which may have saved D's neighbours in memory, this is no change of D.
  at::Tensor d = g.d.variable_data();
  d.copy_(result);
}

}  // namespace apus::ops
