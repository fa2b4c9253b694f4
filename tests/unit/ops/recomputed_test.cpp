#include "apus/ops/recomputed.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "apus/ops/activation.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using apus::testing::random_leaf;
using apus::testing::random_tensor;

/// y = swiglu(gate, up) W^T, as a feed-forward layer ends.
class RecomputedTest : public ::testing::Test {
 protected:
  Recomputed activation() {
    return Recomputed({gate_, up_}, [this](const std::vector<at::Tensor>& inputs) {
      ++calls_;
      return swiglu(inputs[0], inputs[1]);
    });
  }

  at::Tensor gate_ = random_leaf({5, 4}, 1), up_ = random_leaf({5, 4}, 2), weight_ = random_leaf({3, 4}, 3);
  int calls_ = 0;
};

TEST_F(RecomputedTest, GradientsAreTheBitsOfThePlainTape) {
  const Recomputed act = activation();
  const at::Tensor y = at::linear(act.value(), weight_);
  act.drop_until({y});
  y.square().sum().backward();
  EXPECT_EQ(calls_, 3) << "forward, restored for the weight's gradient, with tape for the inputs'";

  const at::Tensor gate = gate_.detach().clone().set_requires_grad(true);
  const at::Tensor up = up_.detach().clone().set_requires_grad(true);
  const at::Tensor weight = weight_.detach().clone().set_requires_grad(true);
  at::linear(swiglu(gate, up), weight).square().sum().backward();
  EXPECT_TRUE(gate_.grad().equal(gate.grad()));
  EXPECT_TRUE(up_.grad().equal(up.grad()));
  EXPECT_TRUE(weight_.grad().equal(weight.grad()));
}

TEST_F(RecomputedTest, TheDroppedValueHasNoMemoryUntilAGradientComes) {
  const Recomputed act = activation();
  const at::Tensor y = at::linear(act.value(), weight_);
  act.drop_until({y});
  EXPECT_THROW(act.value().sum(), c10::Error);
}

TEST_F(RecomputedTest, AnyOfSeveralUsersRestoresIt) {
  const Recomputed act = activation();
  const at::Tensor a = at::linear(act.value(), weight_), b = act.value() * 2;
  act.drop_until({a, b});
  (a.sum() + b.sum()).backward();
  EXPECT_TRUE(gate_.grad().defined());
}

TEST_F(RecomputedTest, WithoutTapeItIsAPlainValue) {
  at::NoGradGuard no_grad;
  const Recomputed act = activation();
  act.drop_until({});
  EXPECT_TRUE(act.value().equal(swiglu(gate_, up_))) << "nothing is dropped";
}

TEST_F(RecomputedTest, AFrozenInputGetsNoGradient) {
  const at::Tensor frozen = random_tensor({5, 4}, 9);
  const Recomputed act({frozen, up_},
                       [](const std::vector<at::Tensor>& inputs) { return swiglu(inputs[0], inputs[1]); });
  act.value().sum().backward();
  EXPECT_FALSE(frozen.grad().defined());
  EXPECT_TRUE(up_.grad().defined());
}

}  // namespace
}  // namespace apus::ops
