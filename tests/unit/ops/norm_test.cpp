#include "apus/ops/norm.h"

#include "apus/base/error.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

// The formula in double, one step after the other.
at::Tensor norm_in_double(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = x.to(at::kDouble);
  return wide / (wide.square().mean(-1, true) + eps).sqrt() * weight.to(at::kDouble);
}

TEST(RmsNorm, EqualsTheFormula) {
  const at::Tensor x = random_tensor({5, 16}, 1) * 3, weight = random_tensor({16}, 2);
  expect_close(rms_norm(x, weight, 1e-5), norm_in_double(x, weight, 1e-5),
               {.absolute = 1e-6, .relative = 1e-6});
}

TEST(RmsNorm, EpsilonBoundsTheScaleOfAZeroRow) {
  const at::Tensor x = at::empty({1, 4}, at::kFloat).fill_(1e-4);
  const at::Tensor ones = at::empty({4}, at::kFloat).fill_(1);
  // mean square 1e-8, eps 1e-4: x / sqrt(1.0001e-4)
  expect_close(rms_norm(x, ones, 1e-4), x / std::sqrt(1.0001e-4), {.relative = 1e-6});
}

TEST(RmsNorm, RoundsToBf16BeforeTheWeight) {
  const at::Tensor x = random_tensor({3, 8}, 3, at::kBFloat16), weight = random_tensor({8}, 4, at::kBFloat16);
  const at::Tensor ones = at::empty({8}, at::kBFloat16).fill_(1);
  const at::Tensor rounded = norm_in_double(x, ones, 1e-6).to(at::kFloat).to(at::kBFloat16);
  expect_equal(rms_norm(x, weight, 1e-6), rounded * weight);
}

TEST(RmsNorm, SquaresOfLargeBf16ValuesDoNotOverflow) {
  const at::Tensor x = at::empty({1, 8}, at::kBFloat16).fill_(3e15);
  const at::Tensor ones = at::empty({8}, at::kBFloat16).fill_(1);
  expect_close(rms_norm(x, ones, 1e-6), ones.unsqueeze(0), {.absolute = 1e-2});
}

TEST(RmsNorm, HasTheGradientsOfFiniteDifferences) {
  check_gradients([](const auto& in) { return rms_norm(in[0], in[1], 1e-5); },
                  {random_tensor({3, 6}, 5), random_tensor({6}, 6)});
}

TEST(RmsNorm, RefusesAWeightOfAnotherSizeOrDtype) {
  EXPECT_THROW(rms_norm(random_tensor({3, 6}, 1), random_tensor({5}, 1), 1e-5), ShapeError);
  EXPECT_THROW(rms_norm(random_tensor({3, 6}, 1), random_tensor({6}, 1, at::kBFloat16), 1e-5), ShapeError);
}

TEST(AddRmsNorm, IsTheSumAndItsNorm) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = random_tensor({4, 8}, 1, dtype), residual = random_tensor({4, 8}, 2, dtype);
    const at::Tensor weight = random_tensor({8}, 3, dtype);
    const AddRmsNorm joined = add_rms_norm(x, residual, weight, 1e-6);
    expect_equal(joined.sum, x + residual);
    expect_equal(joined.normed, rms_norm(x + residual, weight, 1e-6));
  }
}

TEST(AddRmsNorm, GradientsFlowThroughBothOutputs) {
  check_gradients(
      [](const auto& in) {
        const AddRmsNorm joined = add_rms_norm(in[0], in[1], in[2], 1e-5);
        return joined.sum * joined.normed;
      },
      {random_tensor({3, 6}, 5), random_tensor({3, 6}, 6), random_tensor({6}, 7)}, 4e-3);
}

TEST(AddRmsNorm, RefusesAResidualThatWouldBroadcast) {
  EXPECT_THROW(add_rms_norm(random_tensor({3, 6}, 1), random_tensor({1, 6}, 1), random_tensor({6}, 1), 1e-5),
               ShapeError);
}

TEST(RmsNormResidual, IsTheNormAndTheInputItself) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = random_tensor({4, 8}, 1, dtype), weight = random_tensor({8}, 3, dtype);
    const ResidualRmsNorm both = rms_norm_residual(x, weight, 1e-6);
    expect_equal(both.normed, rms_norm(x, weight, 1e-6));
    EXPECT_TRUE(both.passed.is_same(x) || both.passed.is_alias_of(x));
    expect_equal(both.passed, x);
  }
}

TEST(RmsNormResidual, AddsTheGradientsOfBothPaths) {
  check_gradients(
      [](const auto& in) {
        const ResidualRmsNorm both =
            rms_norm_residual(in[0], in[1], 1e-5, {.normed = {8, 8}, .grad = {0, 8}});
        return both.passed * both.normed;
      },
      {random_tensor({3, 6}, 5), random_tensor({6}, 7)}, 4e-3);
}

TEST(RmsNormResidual, RefusesWhatDoesNotFit) {
  const at::Tensor x = random_tensor({3, 6}, 1), weight = random_tensor({6}, 2);
  EXPECT_THROW(rms_norm_residual(x.unflatten(1, {2, 3}), random_tensor({3}, 1), 1e-5), ShapeError);
  EXPECT_THROW(rms_norm_residual(x, random_tensor({5}, 1), 1e-5), ShapeError);
  EXPECT_THROW(rms_norm_residual(x, weight, 1e-5, {.normed = {-1, 0}}), ShapeError);
}

}  // namespace
}  // namespace apus::ops
