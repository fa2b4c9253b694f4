#include "apus/nn/adaptable_module.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tensor.h>

#include "apus/base/error.h"
#include "apus/nn/embedding.h"
#include "apus/nn/linear.h"
#include "apus/nn/rms_norm.h"
#include "tests/support/tensor_checks.h"

namespace apus::nn {
namespace {

using namespace apus::testing;

/// Gives every parameter other values.
void fill(const Module& module, uint64_t seed = 40) {
  for (const NamedParameter& parameter : module.named_parameters())
    parameter.tensor.set_data(
        random_tensor(parameter.tensor.sizes(), seed++, parameter.tensor.scalar_type()));
}

const PassContext kWithA{.adapters = {"a"}}, kWithB{.adapters = {"b"}}, kWithBoth{.adapters = {"a", "b"}};

TEST(AdaptableModule, CopiesAreNamedListedAndTakenOff) {
  Linear linear({.in_features = 3, .out_features = 2, .bias = true});
  linear.add_copy({.adapter = "a", .parameter = "weight"});
  const at::Tensor bias =
      linear.add_copy({.adapter = "b", .parameter = "bias", .kind = CopyKind::kBaseLayer});
  EXPECT_TRUE(bias.requires_grad() && bias.is_leaf());
  EXPECT_EQ(bias.sizes(), at::IntArrayRef({2}));
  const auto parameters = linear.named_parameters("q_proj");
  ASSERT_EQ(parameters.size(), 4u);
  EXPECT_EQ(parameters[2].name, "q_proj.modules_to_save.a.weight");
  EXPECT_EQ(parameters[3].name, "q_proj.base_layer.b.bias");
  ASSERT_EQ(linear.copies("b").size(), 1u);
  EXPECT_EQ(linear.copies("b")[0].name, "base_layer.b.bias");
  EXPECT_TRUE(linear.find_copy("b", "bias").is_same(bias));
  EXPECT_FALSE(linear.find_copy("b", "weight").defined());
  linear.remove_copies("a");
  linear.remove_copies("a");
  EXPECT_EQ(linear.named_parameters().size(), 3u);
  EXPECT_EQ(linear.originals().size(), 2u);
}

TEST(AdaptableModule, APassReadsTheCopiesOfItsAdapters) {
  Linear linear({.in_features = 3, .out_features = 2, .bias = true});
  const at::Tensor weight = linear.add_copy({.adapter = "a", .parameter = "weight"});
  const at::Tensor bias = linear.add_copy({.adapter = "b", .parameter = "bias"});
  fill(linear);
  const at::Tensor x = random_tensor({4, 3}, 1);
  expect_equal(linear.forward(x, {}), at::linear(x, linear.weight(), linear.bias()));
  expect_equal(linear.forward(x, kWithA).detach(), at::linear(x, weight, linear.bias()).detach());
  expect_equal(linear.forward(x, kWithB).detach(), at::linear(x, linear.weight(), bias).detach());
  expect_equal(linear.forward(x, kWithBoth).detach(), at::linear(x, weight, bias).detach());
}

TEST(AdaptableModule, ACopyIsRoundedToTheBaseAndItsGradientIsNot) {
  Linear linear({.in_features = 3, .out_features = 2, .dtype = at::kBFloat16});
  const at::Tensor copy = linear.add_copy({.adapter = "a", .parameter = "weight"});
  fill(linear);
  const at::Tensor x = random_tensor({4, 3}, 1, at::kBFloat16);
  const at::Tensor y = linear.forward(x, kWithA);
  expect_equal(y.detach(), at::linear(x, copy.detach().to(at::kBFloat16)));
  y.sum().backward();
  EXPECT_EQ(copy.grad().scalar_type(), at::kFloat);
  EXPECT_FALSE(linear.weight().grad().defined());
}

TEST(AdaptableModule, TwoActiveCopiesOfOneParameterAreRefused) {
  RmsNorm norm({.size = 4});
  norm.add_copy({.adapter = "a", .parameter = "weight"});
  norm.add_copy({.adapter = "b", .parameter = "weight"});
  fill(norm);
  const at::Tensor x = random_tensor({2, 4}, 1);
  EXPECT_NO_THROW(norm.forward(x, kWithA));
  EXPECT_THROW(norm.forward(x, kWithBoth), ConfigError);
}

TEST(AdaptableModule, NormsTakeTheirCopyInEveryForm) {
  RmsNorm norm({.size = 4}), plain({.size = 4});
  const at::Tensor copy = norm.add_copy({.adapter = "a", .parameter = "weight"});
  fill(norm);
  plain.named_parameters()[0].tensor.set_data(copy.detach());
  const at::Tensor x = random_leaf({2, 4}, 1), residual = random_tensor({2, 4}, 2);
  const at::Tensor wanted = plain.forward(x, {}).detach();
  expect_equal(norm.forward(x, kWithA).detach(), wanted);
  expect_equal(norm.forward_add(x, residual, kWithA).normed.detach(),
               plain.forward_add(x, residual, {}).normed.detach());
  PassContext light = kWithA;
  light.light_tape = true;
  const ops::Recomputed kept = norm.forward_light(x, light);
  expect_equal(kept.value().detach(), wanted);
  kept.value().sum().backward();
  EXPECT_TRUE(copy.grad().defined());
}

TEST(AdaptableModule, ATiedHeadAndItsEmbeddingHaveCopiesOfTheirOwn) {
  Embedding table({.vocab_size = 5, .hidden_size = 3});
  VocabHead head(table);
  EXPECT_TRUE(head.named_parameters().empty());
  EXPECT_TRUE(head.weight().is_same(table.weight()));
  const at::Tensor of_head = head.add_copy({.adapter = "a", .parameter = "weight"});
  const at::Tensor of_table = table.add_copy({.adapter = "b", .parameter = "weight"});
  fill(table);
  fill(head, 90);
  const at::Tensor tokens = at::tensor({4, 1}, at::kLong);
  EXPECT_TRUE(head.weight(kWithA).is_same(of_head));
  EXPECT_TRUE(head.weight(kWithB).is_same(table.weight()));
  expect_equal(table.forward(tokens, kWithA), at::embedding(table.weight(), tokens));
  expect_equal(table.forward(tokens, kWithB).detach(), at::embedding(of_table, tokens).detach());
}

TEST(AdaptableModule, RefusesCopiesThatCannotBe) {
  RmsNorm norm({.size = 4});
  EXPECT_THROW(norm.add_copy({.adapter = "a", .parameter = "bias"}), ConfigError);
  EXPECT_THROW(norm.add_copy({.adapter = "a.b", .parameter = "weight"}), ConfigError);
  EXPECT_THROW(norm.add_copy({.adapter = "", .parameter = "weight"}), ConfigError);
  norm.add_copy({.adapter = "a", .parameter = "weight"});
  EXPECT_THROW(norm.add_copy({.adapter = "a", .parameter = "weight"}), ConfigError);
}

}  // namespace
}  // namespace apus::nn
