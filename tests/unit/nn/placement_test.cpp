#include "apus/nn/placement.h"

#include "apus/nn/linear.h"
#include "tests/support/tensor_checks.h"

namespace apus::nn {
namespace {

using namespace apus::testing;

TEST(PlaceFrozen, RoundsWhatIsFrozenAndKeepsTheLeaves) {
  Linear linear({.in_features = 3, .out_features = 2, .bias = true});
  for (const NamedParameter& parameter : linear.named_parameters())
    parameter.tensor.set_data(random_tensor(parameter.tensor.sizes(), 1));
  const at::Tensor weight = linear.weight(), bias = linear.bias(), values = weight.clone();
  bias.set_requires_grad(true);
  place_frozen(linear.named_parameters(), {.frozen_dtype = at::kBFloat16});
  expect_equal(weight, values.to(at::kBFloat16));
  EXPECT_EQ(bias.scalar_type(), at::kFloat);
  EXPECT_TRUE(linear.weight().is_same(weight));
}

TEST(PlaceFrozen, LeavesAloneWhatIsInPlace) {
  Linear linear({.in_features = 3, .out_features = 2});
  const void* before = linear.weight().const_data_ptr();
  place_frozen(linear.named_parameters(), {.frozen_dtype = at::kFloat});
  EXPECT_EQ(linear.weight().const_data_ptr(), before);
}

}  // namespace
}  // namespace apus::nn
