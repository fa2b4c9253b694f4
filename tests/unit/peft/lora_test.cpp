#include "apus/peft/lora.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "tests/unit/peft/support/tiny_model.h"

namespace apus::peft {
namespace {

using testing::message_of;
using testing::TinyModel;

LoraConfig config_of(std::vector<std::string> names) {
  LoraConfig config{.r = 4, .lora_alpha = 8, .targets = {}, .base_model_name_or_path = "", .kept = {}};
  config.targets = LoraTargets::from_names(std::move(names));
  return config;
}

at::Tensor tensor_named(nn::CausalLm& model, const std::string& name) {
  for (const nn::NamedParameter& parameter : model.named_parameters())
    if (parameter.name == name) return parameter.tensor;
  return {};
}

TEST(ApplyLora, AddsTrainableTensorsToTheTargetsAlone) {
  TinyModel model;
  const LoraSummary summary = apply_lora(model, config_of({"v_proj", "q_proj"}), "default", {});
  EXPECT_EQ(summary.modules,
            (std::vector<std::string>{"model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.v_proj",
                                      "model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.v_proj"}));
  EXPECT_EQ(summary.parameters, 2 * (4 * (6 + 6) + 4 * (6 + 4)));
  int64_t trainable = 0;
  for (const nn::NamedParameter& parameter : model.named_parameters())
    if (parameter.tensor.requires_grad()) trainable += parameter.tensor.numel();
  EXPECT_EQ(trainable, summary.parameters);
  EXPECT_EQ(model.layers[0].down_proj.find_adapter("default"), nullptr);
  EXPECT_EQ(model.layers[0].q_proj.find_adapter("default")->scaling, 2.0);
}

TEST(ApplyLora, StartsAsTheBaseAloneAndMovesWithB) {
  TinyModel model;
  apply_lora(model, config_of({"q_proj"}), "default", {});
  nn::PassContext base, adapted;
  adapted.adapters = {"default"};
  const at::Tensor x_TI = model.embed_tokens.forward(at::tensor({0, 3, 1}, at::kLong), {});
  EXPECT_TRUE(at::equal(model.layers[0].forward(x_TI, base), model.layers[0].forward(x_TI, adapted)));
  tensor_named(model, "model.layers.0.self_attn.q_proj.lora_B.default.weight").detach().fill_(0.5);
  EXPECT_FALSE(at::equal(model.layers[0].forward(x_TI, base), model.layers[0].forward(x_TI, adapted)));
}

TEST(ApplyLora, DrawsAUniformlyWithinPeftsBound) {
  TinyModel model;
  LoraConfig config = config_of({"all-linear"});
  config.r = 256;
  apply_lora(model, config, "default", {.seed = 3, .dtype = at::kFloat});
  for (nn::Linear* linear : {&model.layers[0].q_proj, &model.layers[1].down_proj}) {
    const at::Tensor a_RI = linear->find_adapter("default")->a_RI.detach();
    const double bound = 1.0 / std::sqrt(static_cast<double>(linear->options().in_features));
    EXPECT_LE(a_RI.abs().max().item<double>(), bound);
    EXPECT_GT(a_RI.abs().max().item<double>(), 0.98 * bound);
    // Uniform: mean 0, variance bound^2 / 3; 1,500 and 2,560 draws.
    EXPECT_NEAR(a_RI.mean().item<double>(), 0.0, 0.08 * bound);
    EXPECT_NEAR(a_RI.square().mean().item<double>(), bound * bound / 3, 0.06 * bound * bound);
    EXPECT_EQ(linear->find_adapter("default")->b_OR.detach().abs().sum().item<double>(), 0);
  }
}

TEST(ApplyLora, NumbersDependOnSeedNameAndElementAlone) {
  TinyModel all, some, other_seed, other_name;
  apply_lora(all, config_of({"all-linear"}), "default", {.seed = 5, .dtype = at::kFloat});
  apply_lora(some, config_of({"v_proj"}), "default", {.seed = 5, .dtype = at::kFloat});
  apply_lora(other_seed, config_of({"v_proj"}), "default", {.seed = 6, .dtype = at::kFloat});
  apply_lora(other_name, config_of({"v_proj"}), "second", {.seed = 5, .dtype = at::kFloat});
  const auto a_of = [](TinyModel& model, int layer, const std::string& name) {
    return model.layers[layer].v_proj.find_adapter(name)->a_RI;
  };
  EXPECT_TRUE(at::equal(a_of(all, 1, "default"), a_of(some, 1, "default")));
  EXPECT_FALSE(at::equal(a_of(all, 0, "default"), a_of(all, 1, "default"))) << "layers differ";
  EXPECT_FALSE(at::equal(a_of(some, 1, "default"), a_of(other_seed, 1, "default")));
  EXPECT_FALSE(at::equal(a_of(some, 1, "default"), a_of(other_name, 1, "second")));
}

TEST(ApplyLora, ALargerRankOnlyAppendsRows) {
  TinyModel small, large;
  LoraConfig config = config_of({"q_proj"});
  apply_lora(small, config, "default", {});
  config.r = 8;
  apply_lora(large, config, "default", {});
  const at::Tensor large_RI = large.layers[0].q_proj.find_adapter("default")->a_RI.detach();
  EXPECT_TRUE(at::equal(small.layers[0].q_proj.find_adapter("default")->a_RI, large_RI.slice(0, 0, 4)))
      << "the counter is the element's index";
}

TEST(ApplyLora, Bf16AdaptersAreTheRoundedFp32Ones) {
  TinyModel wide, narrow;
  apply_lora(wide, config_of({"q_proj"}), "default", {.seed = 1, .dtype = at::kFloat});
  apply_lora(narrow, config_of({"q_proj"}), "default", {.seed = 1, .dtype = at::kBFloat16});
  const at::Tensor a_RI = narrow.layers[0].q_proj.find_adapter("default")->a_RI;
  EXPECT_EQ(a_RI.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(wide.layers[0].q_proj.find_adapter("default")->a_RI.to(at::kBFloat16), a_RI));
}

TEST(ApplyLora, WritesAllLinearOutAsASortedList) {
  TinyModel model;
  const LoraSummary summary = apply_lora(model, config_of({"all-linear"}), "default", {});
  EXPECT_FALSE(summary.config.targets.all_linear);
  EXPECT_EQ(summary.config.targets.names, (std::vector<std::string>{"down_proj", "q_proj", "v_proj"}));
  EXPECT_EQ(summary.modules.size(), 6u);
}

TEST(ApplyLora, TakesARegularExpression) {
  TinyModel model;
  LoraConfig config = config_of({"x"});
  config.targets = {.names = {}, .regex = R"(model\.layers\.1\..*_proj)", .all_linear = false};
  const LoraSummary summary = apply_lora(model, config, "default", {});
  EXPECT_EQ(summary.modules.size(), 3u);
  EXPECT_EQ(summary.config.targets.regex, config.targets.regex);
}

TEST(ApplyLora, NamesTheNearestProjectionsForATargetThatMatchesNothing) {
  TinyModel model;
  const std::string message = message_of<ConfigError>([&] {
    apply_lora(model, config_of({"q_proj", "v_prj"}), "default", {});
  });
  EXPECT_NE(message.find("'v_prj' matches no projection (did you mean 'v_proj'?)"), std::string::npos)
      << message;
  EXPECT_NE(message.find("down_proj, q_proj, v_proj"), std::string::npos) << message;
  EXPECT_TRUE(adapter_parameters(model, "default").empty()) << "the model is untouched";
  LoraConfig config = config_of({"x"});
  config.targets = {.names = {}, .regex = "q_proj", .all_linear = false};
  EXPECT_NE(message_of<ConfigError>([&] {
              apply_lora(model, config, "default", {});
            }).find("paths look like 'model.layers.0.self_attn.q_proj'"),
            std::string::npos);
}

TEST(ApplyLora, RefusesTargetsThatAreNoProjections) {
  TinyModel model;
  for (const std::string target : {"lm_head", "embed_tokens", "model.embed_tokens"})
    EXPECT_THROW(apply_lora(model, config_of({"q_proj", target}), "default", {}), NotSupported) << target;
  EXPECT_THROW(apply_lora(model, config_of({"q_proj", "layers.0"}), "default", {}), ConfigError);
  LoraConfig config = config_of({"x"});
  config.targets = {.names = {}, .regex = ".*head", .all_linear = false};
  EXPECT_THROW(apply_lora(model, config, "default", {}), NotSupported);
}

TEST(ApplyLora, RefusesNamesRanksAndInitialisationsThatCannotBe) {
  TinyModel model;
  apply_lora(model, config_of({"q_proj"}), "default", {});
  EXPECT_THROW(apply_lora(model, config_of({"v_proj"}), "default", {}), ConfigError) << "in use on q_proj";
  EXPECT_THROW(apply_lora(model, config_of({"v_proj"}), "", {}), ConfigError);
  EXPECT_THROW(apply_lora(model, config_of({"v_proj"}), "a.b", {}), ConfigError);
  LoraConfig config = config_of({"v_proj"});
  config.r = 0;
  EXPECT_THROW(apply_lora(model, config, "other", {}), ConfigError);
  config.r = 2;
  config.kept["init_lora_weights"] = "\"gaussian\"";
  EXPECT_THROW(apply_lora(model, config, "other", {}), NotSupported);
}

TEST(AdapterParameters, ListsFullNamesInModelOrder) {
  TinyModel model;
  apply_lora(model, config_of({"v_proj"}), "default", {});
  apply_lora(model, config_of({"q_proj"}), "second", {});
  const std::vector<nn::NamedParameter> parameters = adapter_parameters(model, "default");
  ASSERT_EQ(parameters.size(), 4u);
  EXPECT_EQ(parameters[0].name, "model.layers.0.self_attn.v_proj.lora_A.default.weight");
  EXPECT_EQ(parameters[3].name, "model.layers.1.self_attn.v_proj.lora_B.default.weight");
  for (const nn::NamedParameter& parameter : parameters)
    EXPECT_TRUE(parameter.tensor.is_same(tensor_named(model, parameter.name))) << "the model's own handles";
  EXPECT_TRUE(adapter_parameters(model, "third").empty());
}

TEST(CopyAdapter, MakesAFrozenCopyThatDoesNotFollow) {
  TinyModel model;
  LoraConfig config = config_of({"q_proj"});
  config.use_rslora = true;
  apply_lora(model, config, "default", {.seed = 1, .dtype = at::kBFloat16});
  copy_adapter(model, "default", "reference");
  nn::LoraAdapter* source = model.layers[1].q_proj.find_adapter("default");
  nn::LoraAdapter* copy = model.layers[1].q_proj.find_adapter("reference");
  ASSERT_NE(copy, nullptr);
  EXPECT_TRUE(at::equal(copy->a_RI, source->a_RI));
  EXPECT_EQ(copy->a_RI.scalar_type(), at::kBFloat16);
  EXPECT_EQ(copy->scaling, source->scaling);
  EXPECT_FALSE(copy->a_RI.requires_grad() || copy->b_OR.requires_grad());
  EXPECT_TRUE(source->a_RI.requires_grad());
  source->a_RI.detach().fill_(0);
  EXPECT_FALSE(at::equal(copy->a_RI, source->a_RI));
}

TEST(CopyAdapter, RefusesAMissingSourceAndATakenName) {
  TinyModel model;
  EXPECT_THROW(copy_adapter(model, "default", "reference"), ConfigError);
  apply_lora(model, config_of({"q_proj"}), "default", {});
  EXPECT_THROW(copy_adapter(model, "default", "default"), ConfigError);
}

TEST(RemoveAdapter, TakesItOffEverywhere) {
  TinyModel model;
  const std::size_t before = model.named_parameters().size();
  apply_lora(model, config_of({"all-linear"}), "default", {});
  remove_adapter(model, "default");
  EXPECT_EQ(model.named_parameters().size(), before);
  EXPECT_NO_THROW(remove_adapter(model, "default"));
}

}  // namespace
}  // namespace apus::peft
