#include "apus/peft/lora_config.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "tests/unit/peft/support/tiny_model.h"

namespace apus::peft {
namespace {

using nlohmann::json;
using testing::message_of;

constexpr const char* kPeftFile = APUS_SOURCE_DIR "/tests/data/cases/lora/plain/adapter/adapter_config.json";

json peft_config() {
  return json::parse(read_file(kPeftFile));
}

ParsedLoraConfig parse(const json& object) {
  return parse_lora_config(object.dump(), "adapter_config.json");
}

/// Peft's file with one key changed.
json with(const std::string& key, const json& value) {
  json object = peft_config();
  object[key] = value;
  return object;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(LoraConfig, ReadsWhatPeftWrote) {
  const ParsedLoraConfig parsed = parse(peft_config());
  EXPECT_EQ(parsed.config.r, 8);
  EXPECT_EQ(parsed.config.lora_alpha, 16);
  EXPECT_EQ(parsed.config.lora_dropout, 0);
  EXPECT_FALSE(parsed.config.use_rslora);
  EXPECT_EQ(parsed.config.base_model_name_or_path, "base");
  EXPECT_EQ(parsed.config.targets.names.size(), 7u);
  EXPECT_EQ(parsed.warnings, std::vector<std::string>{});
}

TEST(LoraConfig, WritesBackEveryKeyAndValueThatPeftWrote) {
  const json before = peft_config();
  EXPECT_EQ(json::parse(write_lora_config(parse(before).config)), before);
}

TEST(LoraConfig, ANewConfigurationHasPeftsKeys) {
  LoraConfig config;
  config.targets = LoraTargets::from_names({"v_proj", "q_proj", "v_proj"});
  config.lora_dropout = 0.05;
  config.use_rslora = true;
  config.lora_alpha = 12.5;
  const json written = json::parse(write_lora_config(config));
  const json reference = peft_config();
  for (const auto& [key, value] : reference.items()) EXPECT_TRUE(written.contains(key)) << key;
  EXPECT_EQ(written.size(), reference.size());
  EXPECT_EQ(written.at("target_modules"), (json{"q_proj", "v_proj"}));
  EXPECT_EQ(written.at("lora_dropout"), 0.05);
  EXPECT_EQ(written.at("lora_alpha"), 12.5);
  EXPECT_EQ(written.at("use_rslora"), true);
  EXPECT_EQ(written.at("base_model_name_or_path"), nullptr);
}

TEST(LoraConfig, AlphaIsWrittenAsAnIntegerWhereItIsOne) {
  LoraConfig config;
  config.targets.regex = ".*q_proj";
  const json written = json::parse(write_lora_config(config));
  EXPECT_TRUE(written.at("lora_alpha").is_number_integer());
  EXPECT_EQ(written.at("target_modules"), ".*q_proj");
}

TEST(LoraConfig, KeepsKeysWithoutEffect) {
  json object = with("revision", "main");
  object["init_lora_weights"] = "gaussian";
  const json written = json::parse(write_lora_config(parse(object).config));
  EXPECT_EQ(written.at("revision"), "main");
  EXPECT_EQ(written.at("init_lora_weights"), "gaussian");
}

TEST(LoraConfig, TheScalingFollowsRslora) {
  LoraConfig config{.r = 16, .lora_alpha = 32, .targets = {}, .base_model_name_or_path = "", .kept = {}};
  EXPECT_EQ(config.scaling(), 2);
  config.use_rslora = true;
  EXPECT_EQ(config.scaling(), 8);
}

TEST(LoraConfig, RefusesFeaturesThatAreNotBuiltByKey) {
  const std::vector<std::pair<std::string, json>> features = {
      {"use_dora", true},
      {"layer_replication", json::array({json::array({0, 1})})},
      {"fan_in_fan_out", true},
      {"lora_bias", true},
      {"trainable_token_indices", json::array({1})},
      {"target_parameters", json::array({"w"})},
      {"use_qalora", true},
      {"megatron_config", {{"x", 1}}},
      {"init_lora_weights", "pissa_niter_4"},
      {"task_type", "SEQ_CLS"},
  };
  for (const auto& [key, value] : features) {
    const std::string message = message_of<NotSupported>([&] { parse(with(key, value)); });
    EXPECT_TRUE(contains(message, "adapter_config.json: " + key + " = " + value.dump()))
        << key << ": " << message;
  }
}

TEST(LoraConfig, TakesFeaturesThatAreSwitchedOff) {
  for (const json& off : {json(nullptr), json(false), json::array(), json::object()})
    EXPECT_NO_THROW(parse(with("modules_to_save", off))) << off;
}

TEST(LoraConfig, WarnsOnceOfUnknownKeysThatHoldSomething) {
  json object = with("shiny_option", 3);
  object["another"] = "x";
  object["lorap_lr_ratio"] = nullptr;
  const ParsedLoraConfig parsed = parse(object);
  ASSERT_EQ(parsed.warnings.size(), 1u);
  EXPECT_TRUE(contains(parsed.warnings[0], "another, shiny_option")) << parsed.warnings[0];
  EXPECT_FALSE(contains(parsed.warnings[0], "lorap_lr_ratio"));
}

TEST(LoraConfig, RefusesValuesOfAWrongKind) {
  const std::vector<std::pair<std::string, json>> wrong = {
      {"r", 0},
      {"r", -3},
      {"r", 8.5},
      {"r", "8"},
      {"r", 1e30},
      {"lora_alpha", "x"},
      {"lora_dropout", 1},
      {"lora_dropout", -0.1},
      {"use_rslora", 3},
      {"target_modules", json::array()},
      {"target_modules", 5},
      {"target_modules", json::array({1})},
      {"target_modules", ""},
      {"base_model_name_or_path", 3},
  };
  for (const auto& [key, value] : wrong) {
    const std::string message = message_of<CheckpointError>([&] { parse(with(key, value)); });
    EXPECT_TRUE(contains(message, key)) << key << " = " << value << ": " << message;
  }
}

TEST(LoraConfig, RefusesFilesThatAreNoLoraConfiguration) {
  EXPECT_TRUE(contains(message_of<CheckpointError>([] { parse(json::array()); }), "expected a JSON object"));
  EXPECT_TRUE(contains(message_of<CheckpointError>([] { parse(json::object()); }), "'peft_type' is missing"));
  EXPECT_TRUE(contains(message_of<CheckpointError>([] { parse(with("peft_type", "LOHA")); }), "\"LOHA\""));
  EXPECT_TRUE(
      contains(message_of<DataError>([] { parse_lora_config("{\n\"r\": 8,\n}", "a.json"); }), "a.json:3"));
  json without_r = peft_config();
  without_r.erase("r");
  EXPECT_TRUE(contains(message_of<CheckpointError>([&] { parse(without_r); }), "key 'r' is missing"));
}

/// A configuration that uses all that has a field.
json full_config() {
  json object = peft_config();
  object["lora_dropout"] = 0.05;
  object["rank_pattern"] = {{"k_proj", 4}, {"^model.layers.0.mlp.down_proj", 2}};
  object["alpha_pattern"] = {{"v_proj", 24}, {"gate_proj", 0.5}};
  object["bias"] = "lora_only";
  object["modules_to_save"] = json::array({"lm_head", "norm"});
  object["exclude_modules"] = json::array({"o_proj"});
  object["layers_to_transform"] = json::array({0, 3});
  object["layers_pattern"] = json::array({"layers"});
  return object;
}

TEST(LoraConfig, ReadsAndWritesEveryFieldAsItCame) {
  const LoraConfig config = parse(full_config()).config;
  EXPECT_EQ(config.lora_dropout, 0.05);
  EXPECT_EQ(config.rank_pattern.at("k_proj"), 4);
  EXPECT_EQ(config.alpha_pattern.at("gate_proj"), 0.5);
  EXPECT_EQ(config.bias, LoraBias::kLoraOnly);
  EXPECT_EQ(config.modules_to_save, (std::vector<std::string>{"lm_head", "norm"}));
  EXPECT_EQ(config.scope.exclude_names, std::vector<std::string>{"o_proj"});
  EXPECT_EQ(config.scope.layers, (std::vector<int64_t>{0, 3}));
  const json written = json::parse(write_lora_config(config));
  const json wanted = full_config();
  for (const auto& [key, value] : wanted.items()) {
    if (key != "target_modules") {
      EXPECT_EQ(written.at(key), value) << key;
    }
  }
}

TEST(LoraConfig, TakesPeftsOtherSpellingsOfAScope) {
  json object = full_config();
  object["layers_to_transform"] = 2;
  object["layers_pattern"] = "layers";
  object["exclude_modules"] = ".*o_proj";
  const LoraScope scope = parse(object).config.scope;
  EXPECT_EQ(scope.layers, std::vector<int64_t>{2});
  EXPECT_EQ(scope.layers_pattern, std::vector<std::string>{"layers"});
  EXPECT_EQ(scope.exclude_regex, ".*o_proj");
}

TEST(LoraConfig, RefusesWrongValuesOfWhatGoesBeyondAPlainAdapter) {
  const std::vector<std::pair<std::string, json>> wrong = {
      {"bias", "some"},
      {"bias", 3},
      {"rank_pattern", {{"q_proj", 0}}},
      {"rank_pattern", {{"q_proj", 2.5}}},
      {"rank_pattern", json::array({1})},
      {"alpha_pattern", {{"q_proj", "8"}}},
      {"modules_to_save", json::array({""})},
      {"modules_to_save", json::array({3})},
      {"layers_to_transform", json::array({-1})},
      {"layers_to_transform", "all"},
      {"exclude_modules", 7},
  };
  for (const auto& [key, value] : wrong) {
    json object = peft_config();
    object[key] = value;
    const std::string message = message_of<CheckpointError>([&] { parse(object); });
    EXPECT_TRUE(contains(message, key)) << key << " = " << value << ": " << message;
  }
  json layers = full_config();
  layers["target_modules"] = ".*q_proj";
  EXPECT_TRUE(contains(message_of<CheckpointError>([&] { parse(layers); }), "layers_to_transform"));
  EXPECT_THROW(parse_lora_bias("every"), ConfigError);
}

}  // namespace
}  // namespace apus::peft
