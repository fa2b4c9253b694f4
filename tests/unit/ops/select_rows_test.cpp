#include "apus/ops/select_rows.h"

#include <ATen/ops/tensor.h>

#include "apus/base/error.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

TEST(SelectRows, TakesRowsAndAddsUpTheirGradients) {
  const at::Tensor x = random_leaf({5, 3}, 1), weights = random_tensor({4, 3}, 2);
  const at::Tensor y = select_rows(x, at::tensor({0, 2, 2, 4}, at::kLong));
  for (const auto& [m, t] : {std::pair{0, 0}, {1, 2}, {2, 2}, {3, 4}}) EXPECT_TRUE(y[m].equal(x[t]));
  (y * weights).sum().backward();
  const at::Tensor g = x.grad();
  EXPECT_TRUE(g[0].equal(weights[0]));
  EXPECT_EQ(largest(g[1]) + largest(g[3]), 0.0);
  EXPECT_TRUE(g[2].equal(weights[1] + weights[2]));
  EXPECT_TRUE(g[4].equal(weights[3]));
}

TEST(SelectRows, NoRowsGiveZeros) {
  const at::Tensor x = random_leaf({5, 3}, 1);
  const at::Tensor y = select_rows(x, at::empty({0}, at::kLong));
  EXPECT_EQ(y.sizes(), at::IntArrayRef({0, 3}));
  y.sum().backward();
  EXPECT_EQ(largest(x.grad()), 0.0);
}

TEST(SelectRows, RefusesWhatDoesNotFit) {
  const at::Tensor x = random_tensor({5, 3}, 1);
  EXPECT_THROW(select_rows(x, at::tensor({0, 5}, at::kLong)), ShapeError);
  EXPECT_THROW(select_rows(x, at::tensor({-1}, at::kLong)), ShapeError);
  EXPECT_THROW(select_rows(x, at::tensor({0}, at::kInt)), ShapeError);
  EXPECT_THROW(select_rows(x[0], at::tensor({0}, at::kLong)), ShapeError);
}

}  // namespace
}  // namespace apus::ops
