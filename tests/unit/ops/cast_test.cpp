#include "apus/ops/cast.h"

#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

TEST(Cast, IsTheTensorInAnotherDtype) {
  const at::Tensor x = random_tensor({3, 5}, 1), narrow = x.to(at::kBFloat16);
  expect_equal(cast(x, at::kBFloat16), narrow);
  expect_equal(cast(narrow, at::kFloat), narrow.to(at::kFloat));
  EXPECT_TRUE(cast(x, at::kFloat).is_same(x));
}

TEST(Cast, GradientsComeBackInTheInputsDtype) {
  const at::Tensor x = random_leaf({3, 5}, 1, at::kBFloat16), dy = random_tensor({3, 5}, 2);
  (cast(x, at::kFloat) * dy).sum().backward();
  expect_equal(x.grad(), dy.to(at::kBFloat16));
}

}  // namespace
}  // namespace apus::ops
