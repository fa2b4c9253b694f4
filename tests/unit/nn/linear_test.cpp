#include "apus/nn/linear.h"

#include <ATen/ops/linear.h>

#include "apus/base/error.h"
#include "tests/support/tensor_checks.h"

namespace apus::nn {
namespace {

using namespace apus::testing;

void fill(const Module& module, uint64_t seed = 40) {
  for (const NamedParameter& parameter : module.named_parameters())
    parameter.tensor.set_data(
        random_tensor(parameter.tensor.sizes(), seed++, parameter.tensor.scalar_type()));
}

PassContext with_adapters(std::vector<std::string> names) {
  PassContext context;
  context.adapters = std::move(names);
  return context;
}

constexpr LinearOptions kOptions = {.in_features = 6, .out_features = 4, .bias = true};

TEST(Linear, WithoutAdaptersIsExactlyAtLinear) {
  Linear linear(kOptions);
  linear.add_adapter("x", {.rank = 2}, at::kFloat);
  fill(linear);
  const at::Tensor x = random_tensor({5, 6}, 1);
  expect_equal(linear.forward(x, {}), at::linear(x, linear.weight(), linear.bias()));
  expect_equal(linear.forward(x, with_adapters({"unknown"})), at::linear(x, linear.weight(), linear.bias()));
}

TEST(Linear, ParametersAreFrozenAndNamed) {
  Linear linear({.in_features = 6, .out_features = 4});
  ASSERT_EQ(linear.named_parameters("q_proj").size(), 1u);
  EXPECT_EQ(linear.named_parameters("q_proj")[0].name, "q_proj.weight");
  EXPECT_FALSE(linear.weight().requires_grad());
  EXPECT_FALSE(linear.bias().defined());
  EXPECT_EQ(Linear(kOptions).named_parameters()[1].name, "bias");
}

TEST(Linear, AddsEachActiveAdapter) {
  Linear linear(kOptions);
  linear.add_adapter("a", {.rank = 2, .alpha = 8}, at::kFloat);
  linear.add_adapter("b", {.rank = 3, .alpha = 3, .use_rslora = true}, at::kFloat);
  fill(linear);
  const at::Tensor x = random_tensor({5, 6}, 1);
  const auto delta = [&](const char* name, double scaling) {
    const LoraAdapter& adapter = *linear.find_adapter(name);
    return x.mm(adapter.a_RI.t()).mm(adapter.b_OR.t()) * scaling;
  };
  const at::Tensor base = linear.forward(x, {});
  const at::Tensor with_a = base + delta("a", 4.0), with_both = with_a + delta("b", 3.0 / std::sqrt(3.0));
  expect_close(linear.forward(x, with_adapters({"a"})), with_a, {.absolute = 1e-5, .relative = 1e-5});
  expect_close(linear.forward(x, with_adapters({"a", "b"})), with_both, {.absolute = 1e-5, .relative = 1e-5});
}

TEST(Linear, AFreshAdapterIsTrainableZeroAndChangesNothing) {
  Linear linear(kOptions);
  fill(linear);
  const LoraAdapter& adapter = linear.add_adapter("a", {.rank = 2, .alpha = 8}, at::kFloat);
  EXPECT_TRUE(adapter.a_RI.requires_grad() && adapter.b_OR.requires_grad());
  EXPECT_EQ(adapter.a_RI.sizes(), at::IntArrayRef({2, 6}));
  EXPECT_EQ(adapter.b_OR.sizes(), at::IntArrayRef({4, 2}));
  const at::Tensor x = random_tensor({5, 6}, 1);
  expect_close(linear.forward(x, with_adapters({"a"})), linear.forward(x, {}), {});
  const auto parameters = linear.named_parameters();
  ASSERT_EQ(parameters.size(), 4u);
  EXPECT_EQ(parameters[2].name, "lora_A.a.weight");
  EXPECT_EQ(parameters[3].name, "lora_B.a.weight");
}

TEST(Linear, AdapterGradientsAreThoseOfFiniteDifferences) {
  Linear linear(kOptions);
  LoraAdapter& adapter = linear.add_adapter("a", {.rank = 2, .alpha = 4}, at::kFloat);
  fill(linear);
  check_gradients(
      [&](const auto& in) {
        adapter.a_RI = in[1];
        adapter.b_OR = in[2];
        return linear.forward(in[0], with_adapters({"a"}));
      },
      {random_tensor({5, 6}, 1), random_tensor({2, 6}, 2), random_tensor({4, 2}, 3)}, 4e-3);
}

TEST(Linear, AFrozenBaseGetsNoGradient) {
  Linear linear(kOptions);
  fill(linear);
  LoraAdapter& adapter = linear.add_adapter("a", {.rank = 2}, at::kFloat);
  linear.forward(random_tensor({5, 6}, 1), with_adapters({"a"})).sum().backward();
  EXPECT_TRUE(adapter.b_OR.grad().defined());
  EXPECT_FALSE(linear.weight().grad().defined());
}

TEST(Linear, AnFp32AdapterBesideABf16BaseComputesInFp32) {
  Linear linear({.in_features = 6, .out_features = 4, .dtype = at::kBFloat16});
  LoraAdapter& adapter = linear.add_adapter("a", {.rank = 2, .alpha = 2}, at::kFloat);
  fill(linear);
  const at::Tensor x = random_tensor({5, 6}, 1, at::kBFloat16);
  const at::Tensor y = linear.forward(x, with_adapters({"a"}));
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  const at::Tensor delta = x.to(at::kFloat).mm(adapter.a_RI.t()).mm(adapter.b_OR.t());
  expect_equal(y, linear.forward(x, {}) + delta.to(at::kBFloat16));
}

TEST(Linear, ARemovedAdapterIsGoneAndItsNameFree) {
  Linear linear(kOptions);
  linear.add_adapter("a", {}, at::kFloat);
  linear.remove_adapter("a");
  EXPECT_EQ(linear.find_adapter("a"), nullptr);
  EXPECT_EQ(linear.named_parameters().size(), 2u);
  EXPECT_THROW(linear.remove_adapter("a"), ConfigError);
  linear.add_adapter("a", {}, at::kFloat);
}

TEST(Linear, RefusesBadAdaptersAndSizes) {
  Linear linear(kOptions);
  linear.add_adapter("a", {}, at::kFloat);
  EXPECT_THROW(linear.add_adapter("a", {}, at::kFloat), ConfigError);
  EXPECT_THROW(linear.add_adapter("b", {.rank = 0}, at::kFloat), ConfigError);
  EXPECT_THROW(linear.add_adapter("", {}, at::kFloat), ConfigError);
  EXPECT_THROW(linear.add_adapter("x.y", {}, at::kFloat), ConfigError);
  EXPECT_THROW(Linear({.in_features = 0, .out_features = 4}), ConfigError);
}

TEST(Linear, ReadsItsTensorsAnewInEveryPass) {
  Linear linear(kOptions);
  fill(linear, 1);
  const at::Tensor x = random_tensor({5, 6}, 1);
  linear.forward(x, {});
  fill(linear, 2);
  expect_equal(linear.forward(x, {}), at::linear(x, random_tensor({4, 6}, 2), random_tensor({4}, 3)));
}

TEST(LoraOptions, ScaleByRankOrItsRoot) {
  EXPECT_DOUBLE_EQ((LoraOptions{.rank = 64, .alpha = 128}.scaling()), 2.0);
  EXPECT_DOUBLE_EQ((LoraOptions{.rank = 64, .alpha = 128, .use_rslora = true}.scaling()), 16.0);
}

}  // namespace
}  // namespace apus::nn
