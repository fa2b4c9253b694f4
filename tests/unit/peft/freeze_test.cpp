#include "apus/peft/freeze.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "apus/base/error.h"
#include "apus/peft/lora.h"
#include "tests/unit/peft/support/tiny_model.h"

namespace apus::peft {
namespace {

using testing::message_of;
using testing::TinyModel;

// In order: embed_tokens 30; each of two layers q.weight 36, q.bias 6, v.weight 24, down.weight 60 = 126;
// head 30.
constexpr int64_t kElements = 30 + 2 * 126 + 30;

FreezeReport freeze(TinyModel& model, const FreezeOptions& options) {
  nn::make_trainable(model);
  return freeze_parameters(model, options);
}

TEST(Freeze, WithoutOptionsKeepsAllThatIsTrainable) {
  TinyModel model;
  const FreezeReport report = freeze(model, {});
  EXPECT_FALSE(FreezeOptions{}.any());
  EXPECT_EQ(report.trainable.size(), 10u);
  EXPECT_EQ(report.trainable_elements, kElements);
  EXPECT_EQ(report.frozen_elements, 0);
}

TEST(Freeze, ByPrefixAndByExpressionFoundAnywhere) {
  TinyModel model;
  const FreezeReport report = freeze(model, {.freeze_parameters = {"model.layers.0.", "model.embed"},
                                             .freeze_parameters_regex = "_attn\\..*ght$"});
  EXPECT_EQ(report.trainable,
            (std::vector<std::string>{"model.layers.1.self_attn.q_proj.bias",
                                      "model.layers.1.mlp.down_proj.weight", "lm_head.weight"}));
  EXPECT_EQ(report.trainable_elements, 6 + 60 + 30);
  EXPECT_EQ(report.frozen_elements, kElements - 96);
  EXPECT_FALSE(model.layers[0].q_proj.weight().requires_grad());
  EXPECT_TRUE(model.lm_head.weight().requires_grad());
}

TEST(Freeze, TheRatioStopsAtTheParameterThatWouldPassIt) {
  for (const auto& [ratio, frozen] : std::vector<std::pair<double, size_t>>{
           {0.05, 0}, {30.0 / kElements, 1}, {65.9 / kElements, 1}, {66.0 / kElements, 2}, {0.9, 8}}) {
    TinyModel model;
    const FreezeReport report = freeze(model, {.freeze_parameters_ratio = ratio});
    EXPECT_EQ(report.trainable.size(), 10 - frozen) << ratio;
  }
}

TEST(Freeze, WhatIsNamedTrainableWins) {
  TinyModel model;
  const FreezeReport report = freeze(model, {.freeze_parameters_ratio = 1,
                                             .trainable_parameters = {"lm_head"},
                                             .trainable_parameters_regex = "layers\\.1.*v_proj"});
  EXPECT_EQ(report.trainable,
            (std::vector<std::string>{"model.layers.1.self_attn.v_proj.weight", "lm_head.weight"}));
}

TEST(Freeze, OnAModelWithAdaptersTouchesTheirParametersAlone) {
  TinyModel model;
  apply_lora(
      model,
      {.r = 2, .targets = LoraTargets::from_names({"q_proj", "v_proj"}), .modules_to_save = {"lm_head"}},
      "default", {});
  const FreezeReport report = freeze_parameters(
      model, {.freeze_parameters = {"model.layers.0."}, .freeze_parameters_regex = "lora_B"});
  EXPECT_EQ(report.trainable,
            (std::vector<std::string>{"model.layers.1.self_attn.q_proj.lora_A.default.weight",
                                      "model.layers.1.self_attn.v_proj.lora_A.default.weight",
                                      "lm_head.modules_to_save.default.weight"}));
  EXPECT_FALSE(model.lm_head.weight().requires_grad()) << "the base stays frozen";
}

TEST(Freeze, RefusesToTrainABaseBesideAnAdapter) {
  TinyModel model;
  apply_lora(model, {.targets = LoraTargets::from_names({"q_proj"})}, "default", {});
  const std::string message =
      message_of<ConfigError>([&] { freeze_parameters(model, {.trainable_parameters = {"lm_head"}}); });
  EXPECT_NE(message.find("'lm_head.weight' of the base"), std::string::npos) << message;
  EXPECT_NE(message.find("modules_to_save"), std::string::npos);
}

TEST(Freeze, RefusesWhatFitsNothingWithTheNearestNameAndChangesNothing) {
  TinyModel model;
  const auto refusal = [&](const FreezeOptions& options) {
    return message_of<ConfigError>([&] { freeze(model, options); });
  };
  EXPECT_NE(refusal({.freeze_parameters = {"lm_head", "model.embed_token.weight"}})
                .find("(did you mean 'model.embed_tokens.weight'?)"),
            std::string::npos);
  EXPECT_TRUE(model.lm_head.weight().requires_grad()) << "the first prefix was right, but nothing was done";
  EXPECT_NE(refusal({.trainable_parameters = {"layers.0"}}).find("trainable_parameters: 'layers.0'"),
            std::string::npos);
  EXPECT_NE(refusal({.freeze_parameters_regex = "q_prj"}).find("freeze_parameters_regex"), std::string::npos);
  EXPECT_NE(refusal({.trainable_parameters_regex = "("}).find("trainable_parameters_regex"),
            std::string::npos);
  EXPECT_NE(refusal({.freeze_parameters = {""}}).find("empty name"), std::string::npos);
  EXPECT_NE(refusal({.freeze_parameters_ratio = 1.5}).find("[0, 1]"), std::string::npos);
  EXPECT_NE(refusal({.freeze_parameters_ratio = 1}).find("nothing would be trained"), std::string::npos);
}

}  // namespace
}  // namespace apus::peft
