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
      {"modules_to_save", json::array({"lm_head"})},
      {"bias", "lora_only"},
      {"rank_pattern", {{"q_proj", 4}}},
      {"alpha_pattern", {{"q_proj", 4}}},
      {"layers_to_transform", json::array({0})},
      {"layer_replication", json::array({json::array({0, 1})})},
      {"exclude_modules", json::array({"q_proj"})},
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

TEST(LoraConfig, DropoutIsReadButTrainingWithItIsRefused) {
  const LoraConfig config = parse(with("lora_dropout", 0.05)).config;
  EXPECT_EQ(config.lora_dropout, 0.05);
  EXPECT_TRUE(contains(message_of<NotSupported>([&] { require_no_dropout(config); }), "lora_dropout = 0.05"));
  EXPECT_NO_THROW(require_no_dropout(LoraConfig{}));
}

}  // namespace
}  // namespace apus::peft
