#include "apus/ops/joint_linear.h"

#include <ATen/ops/cat.h>

#include "apus/base/error.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

TEST(JointLinear, JoinsProjectionsWithTheirAdapters) {
  const at::Tensor x = random_tensor({5, 6}, 1), a = random_tensor({2, 6}, 4), b = random_tensor({3, 2}, 5);
  const at::Tensor w0 = random_tensor({4, 6}, 2), w1 = random_tensor({3, 6}, 3), bias = random_tensor({4}, 6);
  const at::Tensor y = joint_linear(
      x, {{.weight_OD = w0, .bias_O = bias}, {.weight_OD = w1, .a_RD = a, .b_OR = b, .scaling = 0.25}});
  const at::Tensor second = x.mm(w1.t()) + x.mm(a.t()).mm(b.t()) * 0.25;
  expect_close(y, at::cat({x.mm(w0.t()) + bias, second}, 1), {.absolute = 1e-5});
}

TEST(JointLinear, GradientsAreThoseOfFiniteDifferences) {
  check_gradients(
      [](const std::vector<at::Tensor>& in) {
        return joint_linear(
            in[0], {{.weight_OD = in[1], .bias_O = in[2], .a_RD = in[3], .b_OR = in[4], .scaling = 0.5}},
            {.residual_TO = in[5]});
      },
      {random_tensor({5, 6}, 1), random_tensor({4, 6}, 2), random_tensor({4}, 3), random_tensor({2, 6}, 4),
       random_tensor({4, 2}, 5), random_tensor({5, 4}, 6)});
}

TEST(JointLinear, TakesNoRows) {
  const at::Tensor y = joint_linear(random_tensor({0, 6}, 1), {{.weight_OD = random_tensor({4, 6}, 2)},
                                                               {.weight_OD = random_tensor({3, 6}, 3)}});
  EXPECT_EQ(y.sizes(), at::IntArrayRef({0, 7}));
}

TEST(JointLinear, RefusesWhatDoesNotFit) {
  const at::Tensor x = random_tensor({5, 6}, 1), w = random_tensor({4, 6}, 2);
  EXPECT_THROW(joint_linear(x, {}), ShapeError);
  EXPECT_THROW(joint_linear(x, {{.weight_OD = w.t()}}), ShapeError);
  EXPECT_THROW(joint_linear(x, {{.weight_OD = w, .bias_O = random_tensor({3}, 3)}}), ShapeError);
  EXPECT_THROW(
      joint_linear(x, {{.weight_OD = w, .a_RD = random_tensor({2, 6}, 3), .b_OR = random_tensor({4, 3}, 4)}}),
      ShapeError);
  EXPECT_THROW(joint_linear(x, {{.weight_OD = w}}, {.residual_TO = x}), ShapeError);
  EXPECT_THROW(
      joint_linear(x, {{.weight_OD = w}, {.weight_OD = w}}, {.residual_TO = random_tensor({5, 8}, 5)}),
      ShapeError);
}

}  // namespace
}  // namespace apus::ops
