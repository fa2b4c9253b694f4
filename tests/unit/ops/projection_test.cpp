#include "apus/ops/projection.h"

#include <ATen/ops/tensor.h>

#include "apus/base/error.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

TEST(Embedding, PicksRows) {
  const at::Tensor weight = random_tensor({5, 3}, 1);
  const at::Tensor y = embedding(at::tensor({4, 0, 4}, at::kLong), weight);
  expect_equal(y[0], weight[4]);
  expect_equal(y[1], weight[0]);
  expect_equal(y[2], weight[4]);
}

TEST(Embedding, AddsTheGradientsOfAllUsesOfARow) {
  const at::Tensor weight = random_leaf({5, 2}, 1);
  const at::Tensor incoming = random_tensor({3, 2}, 2);
  (embedding(at::tensor({4, 0, 4}, at::kLong), weight) * incoming).sum().backward();
  expect_close(weight.grad()[4], incoming[0] + incoming[2], {.absolute = 1e-6});
  expect_close(weight.grad()[0], incoming[1], {.absolute = 0});
  EXPECT_EQ(largest(weight.grad().narrow(0, 1, 3)), 0.0);
}

TEST(Embedding, NamesATokenOutsideTheVocabulary) {
  const at::Tensor weight = random_tensor({5, 3}, 1);
  try {
    embedding(at::tensor({1, 5}, at::kLong), weight);
    FAIL() << "did not throw";
  } catch (const ShapeError& error) {
    EXPECT_NE(std::string(error.what()).find("token 5 is outside the vocabulary of 5 rows"),
              std::string::npos)
        << error.what();
  }
  EXPECT_THROW(embedding(at::tensor({-1}, at::kLong), weight), ShapeError);
  EXPECT_THROW(embedding(at::tensor({1}, at::kInt), weight), ShapeError);
}

TEST(Embedding, TakesNoTokens) {
  EXPECT_EQ(embedding(at::empty({0}, at::kLong), random_tensor({5, 3}, 1)).sizes(), at::IntArrayRef({0, 3}));
}

TEST(Linear, IsTheProductPlusTheBias) {
  const at::Tensor x = random_tensor({4, 6}, 1), weight = random_tensor({3, 6}, 2),
                   bias = random_tensor({3}, 3);
  const at::Tensor product = x.to(at::kDouble).mm(weight.to(at::kDouble).t());
  expect_close(linear(x, weight), product, {.absolute = 1e-5});
  expect_close(linear(x, weight, bias), product + bias, {.absolute = 1e-5});
}

TEST(Linear, HasTheGradientsOfFiniteDifferences) {
  check_gradients([](const auto& in) { return linear(in[0], in[1], in[2]); },
                  {random_tensor({4, 6}, 1), random_tensor({3, 6}, 2), random_tensor({3}, 3)});
}

TEST(Linear, Bf16AccumulatesInFp32) {
  const at::Tensor x = random_tensor({2, 512}, 1, at::kBFloat16),
                   weight = random_tensor({3, 512}, 2, at::kBFloat16);
  const at::Tensor wide = x.to(at::kDouble).mm(weight.to(at::kDouble).t());
  // One rounding of the result; sums in bf16 would be off by several times that.
  expect_close(linear(x, weight), wide, {.absolute = 1e-3, .relative = 1.0 / 200});
}

TEST(Linear, NamesTheShapesThatDoNotFit) {
  const at::Tensor x = random_tensor({4, 6}, 1);
  EXPECT_THROW(linear(x, random_tensor({3, 5}, 2)), ShapeError);
  EXPECT_THROW(linear(x, random_tensor({3, 6}, 2, at::kBFloat16)), ShapeError);
  EXPECT_THROW(linear(x, random_tensor({3, 6}, 2), random_tensor({6}, 3)), ShapeError);
}

}  // namespace
}  // namespace apus::ops
