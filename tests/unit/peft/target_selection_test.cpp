#include "peft/target_selection.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "apus/base/error.h"
#include "tests/unit/peft/support/tiny_model.h"

namespace apus::peft::detail {
namespace {

using testing::message_of;
using testing::TinyModel;

/// A model with a module that is no projection and bears a projection's name, and a Linear called lm_head.
class CrossedModel final : public nn::CausalLm {
 public:
  CrossedModel() {
    register_module("encoder.q_proj", table_);
    register_module("layers.0.q_proj", projection_);
    register_module("layers.0.lm_head", head_);
  }
  void prepare(nn::PassContext&) override {}
  at::Tensor embed(const at::Tensor& tokens_T, const nn::PassContext&) override { return tokens_T; }
  std::vector<nn::Block*> blocks() override { return {}; }
  at::Tensor final_norm(const at::Tensor& hidden_MD, const nn::PassContext&) override { return hidden_MD; }
  at::Tensor head_weight(const nn::PassContext&) const override { return head_.weight(); }
  std::vector<nn::NamedParameter> embed_parameters() override { return {}; }
  std::vector<nn::NamedParameter> block_parameters(int64_t) override { return {}; }
  std::vector<nn::NamedParameter> head_parameters() override { return {}; }
  nn::ShardPlan shard_plan() const override { return {}; }
  int64_t hidden_size() const override { return 2; }
  int64_t vocab_size() const override { return 3; }

 private:
  nn::Embedding table_{{.vocab_size = 3, .hidden_size = 2}};
  nn::Linear projection_{{.in_features = 2, .out_features = 2}};
  nn::Linear head_{{.in_features = 2, .out_features = 3}};
};

std::vector<std::string> paths_of(const std::vector<Projection>& projections) {
  std::vector<std::string> paths;
  for (const Projection& projection : projections) paths.push_back(projection.path);
  return paths;
}

TEST(TargetSelection, ListsProjectionsInModelOrder) {
  TinyModel model;
  const std::vector<Projection> projections = projections_of(model);
  ASSERT_EQ(projections.size(), 6u);
  EXPECT_EQ(projections[2].path, "model.layers.0.mlp.down_proj");
  EXPECT_EQ(projections[2].linear, &model.layers[0].down_proj);
}

TEST(TargetSelection, AllLinearLeavesOutAHeadThatIsAProjection) {
  CrossedModel model;
  const Selection selection = select_targets(model, {.targets = LoraTargets::from_names({"all-linear"})});
  EXPECT_EQ(paths_of(selection.targets), std::vector<std::string>{"layers.0.q_proj"});
  EXPECT_TRUE(selection.unmatched.empty());
}

TEST(TargetSelection, AllLinearBecomesWholePathsWhereShortNamesWouldHitMore) {
  CrossedModel crossed;
  EXPECT_EQ(resolve_targets(crossed, {.targets = LoraTargets::from_names({"all-linear"})}).names,
            std::vector<std::string>{"layers.0.q_proj"});
  TinyModel plain;
  EXPECT_EQ(resolve_targets(plain, {.targets = LoraTargets::from_names({"all-linear"})}).names,
            (std::vector<std::string>{"down_proj", "q_proj", "v_proj"}));
}

TEST(TargetSelection, RefusesAModuleThatIsNoProjection) {
  CrossedModel model;
  const std::string message = message_of<ConfigError>(
      [&] { select_targets(model, {.targets = LoraTargets::from_names({"q_proj"})}); });
  EXPECT_NE(message.find("'encoder.q_proj' is no projection"), std::string::npos) << message;
}

TEST(TargetSelection, ReportsNamesThatMatchNothingBesideThoseThatDo) {
  TinyModel model;
  const Selection selection =
      select_targets(model, {.targets = LoraTargets::from_names({"q_proj", "k_proj"})});
  EXPECT_EQ(selection.targets.size(), 2u);
  ASSERT_EQ(selection.unmatched.size(), 1u);
  EXPECT_NE(selection.unmatched[0].find("'k_proj' matches no projection"), std::string::npos);
}

TEST(TargetSelection, WhatIsExcludedOrTrainedWholeIsNeitherTargetNorMissing) {
  TinyModel model;
  LoraConfig config{.targets = LoraTargets::from_names({"q_proj", "down_proj", "lm_head"}),
                    .modules_to_save = {"lm_head"},
                    .scope = {.exclude_names = {"down_proj"}, .layers = {1}}};
  const Selection selection = select_targets(model, config);
  EXPECT_EQ(paths_of(selection.targets), std::vector<std::string>{"model.layers.1.self_attn.q_proj"});
  EXPECT_TRUE(selection.unmatched.empty());
  config.scope.exclude_names = {"self_attn.q_proj", "down_proj"};
  EXPECT_NE(message_of<ConfigError>([&] { select_targets(model, config); }).find("exclude_modules"),
            std::string::npos);
}

}  // namespace
}  // namespace apus::peft::detail
