#include "apus/nn/rms_norm.h"

#include "apus/base/error.h"
#include "tests/support/tensor_checks.h"

namespace apus::nn {
namespace {

using namespace apus::testing;

TEST(RmsNorm, AppliesItsWeightAndEpsilon) {
  RmsNorm norm({.size = 6, .eps = 0.5});
  norm.named_parameters()[0].tensor.set_data(random_tensor({6}, 1));
  const at::Tensor x = random_tensor({3, 6}, 2), residual = random_tensor({3, 6}, 3);
  expect_equal(norm.forward(x, {}), ops::rms_norm(x, norm.weight(), 0.5));
  const ops::AddRmsNorm joined = norm.forward_add(x, residual, {});
  expect_equal(joined.sum, x + residual);
  expect_equal(joined.normed, norm.forward(x + residual, {}));
}

TEST(RmsNorm, IsFrozenAndNamedWeight) {
  const RmsNorm norm({.size = 6, .dtype = at::kBFloat16});
  ASSERT_EQ(norm.named_parameters("model.norm").size(), 1u);
  EXPECT_EQ(norm.named_parameters("model.norm")[0].name, "model.norm.weight");
  EXPECT_EQ(norm.weight().scalar_type(), at::kBFloat16);
  EXPECT_FALSE(norm.weight().requires_grad());
}

TEST(RmsNorm, RefusesBadOptions) {
  EXPECT_THROW(RmsNorm({.size = 0}), ConfigError);
  EXPECT_THROW(RmsNorm({.size = 6, .eps = -1}), ConfigError);
}

}  // namespace
}  // namespace apus::nn
