// Biases and modules that an adapter trains whole: put on a model, saved, loaded, copied, taken off.
#include <ATen/ops/equal.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "apus/base/error.h"
#include "apus/base/safetensors.h"
#include "apus/peft/adapter_file.h"
#include "tests/unit/peft/support/adapter_folder.h"
#include "tests/unit/peft/support/tiny_model.h"

namespace apus::peft {
namespace {

using testing::message_of;
using testing::TestFolder;
using testing::TinyModel;

LoraConfig config_with(LoraBias bias, std::vector<std::string> modules) {
  return {.r = 2,
          .lora_alpha = 4,
          .targets = LoraTargets::from_names({"v_proj", "down_proj"}),
          .bias = bias,
          .modules_to_save = std::move(modules)};
}

std::set<std::string> keys_of(const std::filesystem::path& folder) {
  const SafetensorsFile file(folder / "adapter_model.safetensors");
  std::set<std::string> keys;
  for (const TensorView& tensor : file.tensors())
    if (tensor.name.find("lora_") == std::string::npos)
      keys.insert(tensor.name.substr(std::string("base_model.model.").size()));
  return keys;
}

/// A model with an adapter whose tensors all hold other numbers than the base.
LoraSummary adapted(TinyModel& model, const LoraConfig& config) {
  const LoraSummary summary = apply_lora(model, config, "default", {});
  double value = 0.5;
  for (const nn::NamedParameter& parameter : adapter_parameters(model, "default"))
    parameter.tensor.detach().fill_(value += 0.25);
  return summary;
}

TEST(SavedParts, StartAsTheBasesValuesAndAreListedAsTheAdapters) {
  TinyModel model;
  const LoraSummary summary = apply_lora(model, config_with(LoraBias::kAll, {"lm_head"}), "default", {});
  EXPECT_EQ(summary.copies,
            (std::vector<std::string>{"model.layers.0.self_attn.q_proj.bias",
                                      "model.layers.1.self_attn.q_proj.bias", "lm_head.weight"}));
  EXPECT_TRUE(at::equal(model.lm_head.find_copy("default", "weight"), model.lm_head.weight()));
  const std::vector<nn::NamedParameter> parameters = adapter_parameters(model, "default");
  EXPECT_EQ(parameters.size(), 8u + 3u);
  EXPECT_EQ(parameters[0].name, "model.layers.0.self_attn.q_proj.modules_to_save.default.bias");
  EXPECT_EQ(parameters.back().name, "lm_head.modules_to_save.default.weight");
  int64_t elements = 0;
  for (const nn::NamedParameter& parameter : parameters) {
    EXPECT_TRUE(parameter.tensor.requires_grad()) << parameter.name;
    elements += parameter.tensor.numel();
  }
  EXPECT_EQ(summary.parameters, elements);
  EXPECT_FALSE(model.lm_head.weight().requires_grad());
}

TEST(SavedParts, HaveTheNamesOfPeftsFiles) {
  const TestFolder folder;
  LoraConfig config = config_with(LoraBias::kAll, {"lm_head", "embed_tokens"});
  config.targets = LoraTargets::from_names({"q_proj"});
  TinyModel model;
  const LoraSummary summary = adapted(model, config);
  save_adapter(folder.path(), summary.config, adapter_parameters(model, "default"), "default");
  EXPECT_EQ(keys_of(folder.path()), (std::set<std::string>{"model.layers.0.self_attn.q_proj.base_layer.bias",
                                                           "model.layers.1.self_attn.q_proj.base_layer.bias",
                                                           "lm_head.weight", "model.embed_tokens.weight"}));
}

TEST(SavedParts, OfBiasLoraOnlyAreThoseOfTargets) {
  TinyModel model, other;
  EXPECT_TRUE(apply_lora(model, config_with(LoraBias::kLoraOnly, {}), "default", {}).copies.empty())
      << "v_proj and down_proj have no bias";
  LoraConfig config = config_with(LoraBias::kLoraOnly, {});
  config.targets = LoraTargets::from_names({"q_proj"});
  EXPECT_EQ(apply_lora(other, config, "default", {}).copies.size(), 2u);
}

TEST(SavedParts, AModuleWithAllThatLiesBelowItIsOneName) {
  TinyModel model;
  const LoraSummary summary =
      apply_lora(model, config_with(LoraBias::kNone, {"self_attn.q_proj"}), "default", {});
  EXPECT_EQ(summary.copies.size(), 4u) << "weight and bias in two layers";
  TinyModel whole;
  LoraConfig config = config_with(LoraBias::kNone, {"layers.0"});
  EXPECT_EQ(apply_lora(whole, config, "default", {}).copies.size(), 4u);
  EXPECT_EQ(whole.layers[0].v_proj.find_adapter("default"), nullptr) << "trained whole, so no target";
  EXPECT_NE(whole.layers[1].v_proj.find_adapter("default"), nullptr);
}

TEST(SavedParts, ComeBackFromAFileAndGoOnBeingTrained) {
  const TestFolder folder, again;
  TinyModel model, loaded;
  const LoraSummary summary = adapted(model, config_with(LoraBias::kAll, {"lm_head"}));
  save_adapter(folder.path(), summary.config, adapter_parameters(model, "default"), "default");
  const LoadedAdapter result = load_adapter(folder.path(), loaded, "policy");
  EXPECT_TRUE(result.warnings.empty());
  EXPECT_EQ(result.summary.copies, summary.copies);
  const auto saved = adapter_parameters(model, "default"), read = adapter_parameters(loaded, "policy");
  ASSERT_EQ(saved.size(), read.size());
  for (size_t i = 0; i < saved.size(); ++i) {
    EXPECT_TRUE(at::equal(saved[i].tensor, read[i].tensor)) << saved[i].name;
    EXPECT_TRUE(read[i].tensor.requires_grad());
  }
  EXPECT_FALSE(at::equal(loaded.lm_head.weight(), read.back().tensor)) << "the base stays as it was";
  save_adapter(again.path(), result.summary.config, read, "policy");
  EXPECT_EQ(keys_of(again.path()), keys_of(folder.path()));
}

TEST(SavedParts, AreMissedAndMeasuredBeforeTheModelIsTouched) {
  const TestFolder folder;
  TinyModel model;
  const LoraSummary summary = adapted(model, config_with(LoraBias::kNone, {"lm_head"}));
  save_adapter(folder.path(), summary.config, adapter_parameters(model, "default"), "default");
  const auto refusal = [&] {
    TinyModel fresh;
    const std::string message =
        message_of<CheckpointError>([&] { load_adapter(folder.path(), fresh, "default"); });
    EXPECT_TRUE(adapter_parameters(fresh, "default").empty());
    return message;
  };
  testing::edit_weights(folder.path(), [](std::vector<TensorView>& views) {
    const auto head = std::find_if(views.begin(), views.end(), [](const TensorView& view) {
      return view.name.ends_with("lm_head.weight");
    });
    head->shape = {6, 5};
  });
  EXPECT_NE(refusal().find("[6, 5], expected [5, 6] = the shape of this model's lm_head.weight"),
            std::string::npos);
  testing::edit_weights(folder.path(), [](std::vector<TensorView>& views) {
    std::erase_if(views, [](const TensorView& view) { return view.name.ends_with("lm_head.weight"); });
  });
  EXPECT_NE(refusal().find("base_model.model.lm_head.weight"), std::string::npos);
}

TEST(SavedParts, AreCopiedFrozenAndTakenOffWithTheirAdapter) {
  TinyModel model;
  const size_t before = model.named_parameters().size();
  LoraConfig config = config_with(LoraBias::kAll, {"lm_head"});
  config.targets = LoraTargets::from_names({"q_proj"});
  adapted(model, config);
  copy_adapter(model, "default", "reference");
  const auto source = adapter_parameters(model, "default"), copy = adapter_parameters(model, "reference");
  ASSERT_EQ(source.size(), copy.size());
  for (size_t i = 0; i < copy.size(); ++i) {
    EXPECT_TRUE(at::equal(source[i].tensor, copy[i].tensor)) << copy[i].name;
    EXPECT_FALSE(copy[i].tensor.requires_grad());
    EXPECT_EQ(adapter_key(source[i].name, "default"), adapter_key(copy[i].name, "reference"));
  }
  remove_adapter(model, "default");
  EXPECT_EQ(adapter_parameters(model, "reference").size(), copy.size());
  remove_adapter(model, "reference");
  EXPECT_EQ(model.named_parameters().size(), before);
}

TEST(SavedParts, TwoAdaptersWithDifferentPartsStandSideBySide) {
  TinyModel model;
  apply_lora(model, config_with(LoraBias::kNone, {"lm_head"}), "a", {});
  LoraConfig other{
      .r = 3, .targets = LoraTargets::from_names({"q_proj"}), .modules_to_save = {"embed_tokens"}};
  apply_lora(model, other, "b", {});
  EXPECT_EQ(adapter_parameters(model, "a").size(), 8u + 1u);
  EXPECT_EQ(adapter_parameters(model, "b").size(), 4u + 1u);
  model.lm_head.find_copy("a", "weight").detach().fill_(7);
  nn::PassContext both{.adapters = {"a", "b"}}, b{.adapters = {"b"}};
  EXPECT_TRUE(at::equal(model.head_weight(both), model.lm_head.find_copy("a", "weight")));
  EXPECT_TRUE(at::equal(model.head_weight(b), model.lm_head.weight()));
}

TEST(SavedParts, RefusesNamesThatNameNothingAndModulesNamedTwice) {
  TinyModel model;
  const auto refusal = [&](const LoraConfig& config) {
    return message_of<ConfigError>([&] { apply_lora(model, config, "default", {}); });
  };
  EXPECT_NE(refusal(config_with(LoraBias::kNone, {"lm_heat"})).find("(did you mean 'lm_head'?)"),
            std::string::npos);
  EXPECT_NE(refusal(config_with(LoraBias::kNone, {""})).find("empty name"), std::string::npos);
  EXPECT_NE(refusal(config_with(LoraBias::kNone, {"_proj"})).find("and in modules_to_save at a time"),
            std::string::npos)
      << "a part of a component names modules to save, as in PEFT, but excludes no target";
  EXPECT_TRUE(adapter_parameters(model, "default").empty());
}

TEST(SaveAdapter, RefusesPartsThatTheConfigurationDoesNotName) {
  const TestFolder folder;
  TinyModel model;
  LoraConfig config = config_with(LoraBias::kLoraOnly, {"lm_head"});
  config.targets = LoraTargets::from_names({"q_proj"});
  adapted(model, config);
  const auto refusal = [&] {
    return message_of<ConfigError>(
        [&] { save_adapter(folder.path(), config, adapter_parameters(model, "default"), "default"); });
  };
  config.modules_to_save.clear();
  EXPECT_NE(refusal().find("modules_to_save of the configuration is empty"), std::string::npos);
  config.modules_to_save = {"lm_head"};
  config.bias = LoraBias::kNone;
  EXPECT_NE(refusal().find("bias is none"), std::string::npos);
  config.bias = LoraBias::kLoraOnly;
  EXPECT_EQ(refusal(), "");
}

}  // namespace
}  // namespace apus::peft
