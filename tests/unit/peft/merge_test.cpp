#include "apus/peft/merge.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "apus/base/error.h"
#include "apus/base/safetensors.h"
#include "apus/peft/adapter_file.h"
#include "tests/support/tensor_checks.h"
#include "tests/unit/peft/support/adapter_folder.h"
#include "tests/unit/peft/support/tiny_model.h"

namespace apus::peft {
namespace {

using apus::testing::expect_close;
using testing::message_of;
using testing::TestFolder;
using testing::TinyModel;

MergeBase base_of(const nn::Module& model) {
  MergeBase base;
  for (const nn::NamedParameter& parameter : model.named_parameters())
    base.shapes[parameter.name] = parameter.tensor.sizes().vec();
  return base;
}

/// A saved adapter, and the base that it is for.
class Merge : public ::testing::Test {
 protected:
  void save(const LoraConfig& config) {
    const LoraSummary summary = apply_lora(model_, config, "default", {});
    uint64_t seed = 5;
    for (const nn::NamedParameter& parameter : adapter_parameters(model_, "default"))
      parameter.tensor.set_data(apus::testing::random_tensor(parameter.tensor.sizes(), seed++));
    save_adapter(folder_.path(), summary.config, adapter_parameters(model_, "default"), "default");
  }

  std::string refusal(const MergeBase& base) {
    return message_of<CheckpointError>([&] { AdapterMerge(folder_.path(), base); });
  }

  TestFolder folder_;
  TinyModel model_;
  const MergeBase base_ = base_of(model_);
};

TEST_F(Merge, AddsTheScaledProductOfEachTargetsOwnRank) {
  save({.r = 2,
        .lora_alpha = 4,
        .use_rslora = true,
        .targets = LoraTargets::from_names({"q_proj", "v_proj"}),
        .rank_pattern = {{"1.self_attn.q_proj", 4}},
        .alpha_pattern = {{"v_proj", 3}}});
  const AdapterMerge merge(folder_.path(), base_);
  EXPECT_EQ(merge.touched(),
            (std::vector<std::string>{
                "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.v_proj.weight",
                "model.layers.1.self_attn.q_proj.weight", "model.layers.1.self_attn.v_proj.weight"}));
  EXPECT_TRUE(merge.added().empty());
  EXPECT_FALSE(merge.unties_head());
  const auto check = [&](nn::Linear& linear, const std::string& name, double scaling) {
    const nn::LoraAdapter& adapter = *linear.find_adapter("default");
    expect_close(merge.merged(name, linear.weight()),
                 (linear.weight() + scaling * adapter.b_OR.mm(adapter.a_RI)).detach(), {.absolute = 1e-6},
                 name);
  };
  check(model_.layers[0].q_proj, "model.layers.0.self_attn.q_proj.weight", 4 / std::sqrt(2.0));
  check(model_.layers[1].q_proj, "model.layers.1.self_attn.q_proj.weight", 2.0);
  check(model_.layers[0].v_proj, "model.layers.0.self_attn.v_proj.weight", 3 / std::sqrt(2.0));
  EXPECT_TRUE(at::equal(merge.merged("lm_head.weight", model_.lm_head.weight()), model_.lm_head.weight()));
}

TEST_F(Merge, RoundsOnceToTheBasesDtype) {
  save({.r = 2, .lora_alpha = 4, .targets = LoraTargets::from_names({"v_proj"})});
  const AdapterMerge merge(folder_.path(), base_);
  const std::string name = "model.layers.0.self_attn.v_proj.weight";
  const at::Tensor base = model_.layers[0].v_proj.weight().to(at::kBFloat16);
  const at::Tensor merged = merge.merged(name, base);
  EXPECT_EQ(merged.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(merged, merge.merged(name, base.to(at::kFloat)).to(at::kBFloat16)));
}

TEST_F(Merge, ReplacesTrainedBiasesAndModules) {
  save({.r = 2,
        .targets = LoraTargets::from_names({"v_proj"}),
        .bias = LoraBias::kAll,
        .modules_to_save = {"lm_head", "down_proj"}});
  const AdapterMerge merge(folder_.path(), base_);
  EXPECT_EQ(merge.touched().size(), 2u + 2u + 2u + 1u);
  EXPECT_TRUE(at::equal(merge.merged("lm_head.weight", model_.lm_head.weight()),
                        model_.lm_head.find_copy("default", "weight")));
  EXPECT_TRUE(at::equal(merge.merged("model.layers.1.self_attn.q_proj.bias", model_.layers[1].q_proj.bias()),
                        model_.layers[1].q_proj.find_copy("default", "bias")));
}

TEST_F(Merge, UntiesAHeadThatWasTrainedOrWhoseEmbeddingWas) {
  MergeBase tied = base_;
  tied.shapes.erase("lm_head.weight");
  tied.tied_head = true;
  save({.r = 2, .targets = LoraTargets::from_names({"v_proj"}), .modules_to_save = {"lm_head"}});
  {
    const AdapterMerge merge(folder_.path(), tied);
    ASSERT_EQ(merge.added().size(), 1u);
    EXPECT_EQ(merge.added()[0].name, "lm_head.weight");
    EXPECT_EQ(merge.added()[0].like, "model.embed_tokens.weight");
    EXPECT_TRUE(merge.unties_head());
    EXPECT_TRUE(at::equal(merge.merged("lm_head.weight", model_.embed_tokens.weight()),
                          model_.lm_head.find_copy("default", "weight")));
    EXPECT_TRUE(at::equal(merge.merged("model.embed_tokens.weight", model_.embed_tokens.weight()),
                          model_.embed_tokens.weight()));
  }
  remove_adapter(model_, "default");
  save({.r = 2, .targets = LoraTargets::from_names({"v_proj"}), .modules_to_save = {"embed_tokens"}});
  const AdapterMerge merge(folder_.path(), tied);
  ASSERT_EQ(merge.added().size(), 1u);
  EXPECT_TRUE(
      at::equal(merge.merged("lm_head.weight", model_.embed_tokens.weight()), model_.embed_tokens.weight()))
      << "the head keeps what the embedding was";
  EXPECT_TRUE(at::equal(merge.merged("model.embed_tokens.weight", model_.embed_tokens.weight()),
                        model_.embed_tokens.find_copy("default", "weight")));
}

TEST_F(Merge, RefusesTensorsThatTouchNothingOrDoNotFit) {
  save({.r = 2, .targets = LoraTargets::from_names({"v_proj"}), .modules_to_save = {"lm_head"}});
  MergeBase other = base_;
  other.shapes.erase("model.layers.1.self_attn.v_proj.weight");
  EXPECT_NE(refusal(other).find("touches 'model.layers.1.self_attn.v_proj.weight'"), std::string::npos);
  other = base_;
  other.shapes["model.layers.0.self_attn.v_proj.weight"] = {4, 7};
  EXPECT_NE(refusal(other).find("[2, 6], expected [2, 7], with r = 2"), std::string::npos) << refusal(other);
  other = base_;
  other.shapes["lm_head.weight"] = {9, 6};
  EXPECT_NE(refusal(other).find("expected [9, 6]"), std::string::npos);
  other = base_;
  other.shapes["model.layers.2.self_attn.v_proj.weight"] = {4, 6};
  EXPECT_NE(refusal(other).find("layers.2.self_attn.v_proj.weight"), std::string::npos)
      << "a target without LoRA";
}

TEST_F(Merge, RefusesFilesThatDoNotBelongTogether) {
  save({.r = 2, .targets = LoraTargets::from_names({"v_proj"})});
  testing::edit_weights(folder_.path(), [](std::vector<TensorView>& views) { views.erase(views.begin()); });
  EXPECT_NE(refusal(base_).find("is missing, although its other half is there"), std::string::npos);
  testing::edit_weights(folder_.path(), [](std::vector<TensorView>& views) {
    views[0].name = "base_model.model.lm_head.weight";
  });
  EXPECT_NE(refusal(base_).find("the adapter's files do not belong together"), std::string::npos);
  testing::edit_weights(folder_.path(), [](std::vector<TensorView>& views) { views[0].name = "x"; });
  EXPECT_NE(refusal(base_).find("is no adapter's tensor"), std::string::npos);
}

TEST_F(Merge, RefusesOtherTensorsThanThoseDeclared) {
  save({.r = 2, .targets = LoraTargets::from_names({"v_proj"})});
  const AdapterMerge merge(folder_.path(), base_);
  EXPECT_THROW(merge.merged("lm_head.weight", at::zeros({6, 5})), ShapeError);
  EXPECT_THROW(merge.merged("lm_tail.weight", at::zeros({5, 6})), ConfigError);
}

}  // namespace
}  // namespace apus::peft
