#include "ops/gemm.h"

#include <ATen/ops/full.h>

#include <limits>

#include "apus/base/error.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

TEST(Gemm, MultipliesInEachForm) {
  const at::Tensor a = random_tensor({5, 7}, 1), b = random_tensor({7, 3}, 2), wanted = a.mm(b);
  const auto product = [&](GemmForm form, const at::Tensor& left, const at::Tensor& right) {
    at::Tensor d = at::full({5, 3}, std::numeric_limits<float>::quiet_NaN());
    gemm({.form = form, .a = left, .b = right, .d = d});
    return d;
  };
  expect_close(product(GemmForm::kNn, a, b), wanted, {.absolute = 1e-5});
  expect_close(product(GemmForm::kNt, a, b.t().contiguous()), wanted, {.absolute = 1e-5});
  expect_close(product(GemmForm::kTn, a.t().contiguous(), b), wanted, {.absolute = 1e-5});
}

TEST(Gemm, AddsAnotherMatrixAndABias) {
  const at::Tensor a = random_tensor({4, 6}, 1), b = random_tensor({3, 6}, 2), c = random_tensor({4, 3}, 3);
  const at::Tensor bias = random_tensor({3}, 4),
                   d = at::full({4, 3}, std::numeric_limits<float>::quiet_NaN());
  gemm({.a = a, .b = b, .d = d, .alpha = 0.5, .beta = 2.0, .c = c, .bias_N = bias});
  expect_close(d, 0.5 * a.mm(b.t()) + 2.0 * c + bias, {.absolute = 1e-5});
  const at::Tensor before = d.clone();
  gemm({.a = a, .b = b, .d = d, .beta = 1.0});
  expect_close(d, before + a.mm(b.t()), {.absolute = 1e-5});
}

TEST(Gemm, WritesAViewAndNothingBesideIt) {
  const at::Tensor a = random_tensor({4, 6}, 1), b = random_tensor({3, 6}, 2);
  const at::Tensor wide = at::full({4, 9}, 7.0), view = wide.narrow(1, 2, 3);
  gemm({.a = a, .b = b, .d = view});
  expect_close(view, a.mm(b.t()), {.absolute = 1e-5});
  expect_equal(wide.narrow(1, 0, 2), at::full({4, 2}, 7.0));
  expect_equal(wide.narrow(1, 5, 4), at::full({4, 4}, 7.0));
}

TEST(Gemm, SumsBf16IntoFp32) {
  const at::Tensor a = random_tensor({64, 4}, 1, at::kBFloat16), b = random_tensor({64, 3}, 2, at::kBFloat16);
  const at::Tensor d = random_tensor({4, 3}, 3), before = d.clone();
  gemm({.form = GemmForm::kTn, .a = a, .b = b, .d = d, .beta = 1.0});
  expect_close(d, before + a.to(at::kFloat).t().mm(b.to(at::kFloat)), {.absolute = 1e-4});
}

TEST(Gemm, RefusesWhatDoesNotFit) {
  const at::Tensor a = random_tensor({4, 6}, 1), b = random_tensor({3, 5}, 2), d = random_tensor({4, 3}, 3);
  EXPECT_THROW(gemm({.a = a, .b = b, .d = d}), ShapeError);
  const at::Tensor fits = random_tensor({3, 6}, 2);
  EXPECT_THROW(gemm({.a = a, .b = fits, .d = d.t()}), ShapeError);
  EXPECT_THROW(gemm({.a = a, .b = fits.to(at::kBFloat16), .d = d}), ShapeError);
  EXPECT_THROW(gemm({.a = a, .b = fits, .d = d.to(at::kBFloat16)}), ShapeError);
  EXPECT_THROW(gemm({.a = a, .b = fits, .d = d, .beta = 1.0, .c = b}), ShapeError);
  EXPECT_THROW(gemm({.a = a, .b = fits, .d = d, .bias_N = random_tensor({4}, 5)}), ShapeError);
}

TEST(Gemm, AnEmptySumIsZero) {
  const at::Tensor d = at::full({4, 3}, 5.0);
  gemm({.a = random_tensor({4, 0}, 1), .b = random_tensor({3, 0}, 2), .d = d});
  EXPECT_EQ(largest(d), 0.0);
}

}  // namespace
}  // namespace apus::ops
