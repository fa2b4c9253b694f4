#include "apus/models/init_random.h"

#include "apus/models/qwen2.h"
#include "tests/support/tensor_checks.h"

namespace apus::models {
namespace {

using namespace apus::testing;

at::Tensor parameter(const nn::Module& module, const std::string& name) {
  for (const auto& entry : module.named_parameters())
    if (entry.name == name) return entry.tensor;
  ADD_FAILURE() << "no parameter " << name;
  return {};
}

TEST(InitRandom, DrawsMatricesAndSetsNormsAndBiases) {
  Qwen2 model({}, at::kFloat);
  init_random(model, {.seed = 1, .standard_deviation = 0.05});
  const at::Tensor table = parameter(model, "model.embed_tokens.weight");
  EXPECT_NEAR(table.std().item<double>(), 0.05, 0.002);
  EXPECT_NEAR(table.mean().item<double>(), 0, 0.003);
  EXPECT_EQ(largest(parameter(model, "model.norm.weight") - 1), 0);
  EXPECT_EQ(largest(parameter(model, "model.layers.0.self_attn.q_proj.bias")), 0);
}

TEST(InitRandom, DependsOnSeedAndNameNotOnTheRestOfTheModel) {
  Qwen2 small({.num_hidden_layers = 1}, at::kFloat), large({.num_hidden_layers = 3}, at::kFloat);
  init_random(small, {.seed = 5});
  init_random(large, {.seed = 5});
  const std::string q = "model.layers.0.self_attn.q_proj.weight",
                    o = "model.layers.0.self_attn.o_proj.weight";
  expect_equal(parameter(small, q), parameter(large, q));
  EXPECT_GT(largest(parameter(small, q) - parameter(small, o)), 0.01);
  init_random(large, {.seed = 6});
  EXPECT_GT(largest(parameter(small, q) - parameter(large, q)), 0.01);
}

TEST(InitRandom, Bf16IsTheRoundedFp32) {
  Qwen2 wide({}, at::kFloat), narrow({}, at::kBFloat16);
  init_random(wide, {.seed = 5});
  init_random(narrow, {.seed = 5});
  expect_equal(parameter(narrow, "lm_head.weight"), parameter(wide, "lm_head.weight").to(at::kBFloat16));
}

TEST(InitRandom, FillsTrainableParametersToo) {
  Qwen2 model({}, at::kFloat);
  nn::make_trainable(model);
  init_random(model, {.seed = 5});
  EXPECT_TRUE(parameter(model, "lm_head.weight").is_leaf());
  EXPECT_GT(largest(parameter(model, "lm_head.weight")), 0.01);
}

}  // namespace
}  // namespace apus::models
