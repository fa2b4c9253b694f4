#include "apus/nn/joint_linear.h"

#include <ATen/ops/cat.h>

#include "apus/base/error.h"
#include "apus/nn/dropout_rows.h"
#include "tests/support/tensor_checks.h"

namespace apus::nn {
namespace {

using namespace apus::testing;

/// q, k and v of a tiny layer.
struct Three {
  Three() {
    uint64_t seed = 40;
    for (Linear* linear : {&q, &k, &v}) {
      linear->add_adapter("a", {.rank = 8, .alpha = 4}, at::kFloat);
      for (const NamedParameter& parameter : linear->named_parameters())
        parameter.tensor.set_data(random_tensor(parameter.tensor.sizes(), seed++));
    }
  }
  at::Tensor apart(const at::Tensor& x, const PassContext& context) const {
    return at::cat({q.forward(x, context), k.forward(x, context), v.forward(x, context)}, 1);
  }

  Linear q{{.in_features = 6, .out_features = 8, .bias = true}}, k{{.in_features = 6, .out_features = 4}},
      v{{.in_features = 6, .out_features = 4}};
  JointLinear joint{{&q, &k, &v}};
};

PassContext with_adapters(std::vector<std::string> names) {
  PassContext context;
  context.adapters = std::move(names);
  return context;
}

TEST(JointLinear, IsItsProjectionsSideBySide) {
  Three three;
  const at::Tensor x = random_tensor({5, 6}, 1);
  for (const PassContext& context : {PassContext{}, with_adapters({"a"}), with_adapters({"unknown"})})
    expect_close(three.joint.forward(x, context), three.apart(x, context), {.absolute = 1e-5});
}

TEST(JointLinear, AHomeTakesTheWeightsAndChangesNoNumber) {
  Three three;
  const at::Tensor x = random_tensor({5, 6}, 1), weight = three.q.weight();
  const PassContext context = with_adapters({"a"});
  const at::Tensor before = three.joint.forward(x, context), values = weight.clone();
  EXPECT_TRUE(three.joint.input_room(context).is_empty());
  three.joint.make_home({});
  ASSERT_TRUE(three.joint.home());
  EXPECT_TRUE(three.joint.home()->holds(weight));
  EXPECT_TRUE(three.joint.home()->holds(three.q.bias()));
  EXPECT_FALSE(weight.is_contiguous());
  expect_equal(weight, values);
  expect_close(three.joint.forward(x, context), before, {.absolute = 1e-5});
  EXPECT_EQ(three.joint.input_room(context), (ops::RowRoom{0, 24}));
  EXPECT_EQ(three.joint.grad_room(context), (ops::RowRoom{0, 24}));
  EXPECT_TRUE(three.joint.input_room({}).is_empty());
}

TEST(JointLinear, AWeightThatLeavesItsHomeEndsIt) {
  Three three;
  three.joint.make_home({});
  const PassContext context = with_adapters({"a"});
  three.k.weight().set_data(random_tensor({4, 6}, 3));
  EXPECT_TRUE(three.joint.input_room(context).is_empty());
  const at::Tensor x = random_tensor({5, 6}, 1);
  expect_close(three.joint.forward(x, context), three.apart(x, context), {.absolute = 1e-5});
}

TEST(JointLinear, TrainableWeightsHaveNoHome) {
  Three three;
  three.k.weight().set_requires_grad(true);
  three.joint.make_home({});
  EXPECT_FALSE(three.joint.home());
}

TEST(JointLinear, PlacingOnTheCpuMakesNone) {
  Three three;
  three.joint.place({});
  EXPECT_FALSE(three.joint.home());
}

TEST(JointLinear, RoomIsForTheWidestAdapterInEights) {
  Three three;
  three.v.add_adapter("wide", {.rank = 17}, at::kFloat);
  three.joint.make_home({});
  EXPECT_EQ(three.joint.home()->options().rank, 24);
  Three told;
  told.joint.make_home({.frozen_dtype = at::kBFloat16, .room_rank = 0});
  EXPECT_EQ(told.joint.home()->options().rank, 0);
  EXPECT_EQ(told.q.weight().scalar_type(), at::kBFloat16);
}

TEST(JointLinear, PassesThatNeedMoreAreComputedOneByOne) {
  Three three;
  three.q.add_adapter("b", {.rank = 3}, at::kFloat);
  three.q.find_adapter("b")->b_OR.set_data(random_tensor({8, 3}, 5));
  three.v.add_copy({.adapter = "copy", .parameter = "weight", .dtype = at::kFloat});
  const at::Tensor x = random_tensor({5, 6}, 1);
  for (const PassContext& context : {with_adapters({"a", "b"}), with_adapters({"copy"})}) {
    const bool is_plain = three.q.plain_part(context) && three.v.plain_part(context);
    EXPECT_FALSE(is_plain);
    expect_equal(three.joint.forward(x, context), three.apart(x, context));
  }
}

TEST(JointLinear, AddsAResidualToOneProjection) {
  Three three;
  const JointLinear single({&three.q});
  const at::Tensor x = random_tensor({5, 6}, 1), residual = random_tensor({5, 8}, 2);
  const at::Tensor wanted = three.q.forward(x, with_adapters({"a"})) + residual;
  expect_close(single.forward(x, with_adapters({"a"}), {.residual_TO = residual}), wanted,
               {.absolute = 1e-5});
}

TEST(JointLinear, WantsOneInputWidth) {
  const Linear six({.in_features = 6, .out_features = 4}), five({.in_features = 5, .out_features = 4});
  EXPECT_THROW(JointLinear({&six, &five}), ConfigError);
  EXPECT_THROW(JointLinear({}), ConfigError);
}

TEST(PlainPart, OfADroppedOrMixedAdapterThereIsNone) {
  Linear linear({.in_features = 6, .out_features = 4});
  linear.add_adapter("drops", {.rank = 2, .dropout = 0.5, .path = "p"}, at::kFloat);
  linear.add_adapter("mixed", {.rank = 2}, at::kBFloat16);
  PassContext context = with_adapters({"drops"});
  EXPECT_TRUE(linear.plain_part(context)->has_adapter());
  context.dropout = std::make_shared<DropoutRows>();
  EXPECT_FALSE(linear.plain_part(context));
  EXPECT_FALSE(linear.plain_part(with_adapters({"mixed"})));
  EXPECT_FALSE(linear.plain_part({})->has_adapter());
  linear.set_boundary(std::make_shared<Boundary>());
  EXPECT_FALSE(linear.plain_part({}));
}

}  // namespace
}  // namespace apus::nn
