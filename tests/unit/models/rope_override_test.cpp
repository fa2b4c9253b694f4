#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/models/decoder_config.h"
#include "apus/models/rope_config.h"
#include "tests/unit/models/support/model_folder.h"

namespace apus::models {
namespace {

using apus::testing::message_of;
using nlohmann::json;
using ops::RopeType;

/// A model of 64 tokens with a rule of its own.
std::string config_text(const json& rule = nullptr, const char* key = "rope_scaling") {
  json config = json::parse(decoder_config_json({.max_position_embeddings = 64}, at::kFloat));
  config.erase("rope_scaling");
  config[key] = rule;
  return config.dump();
}

DecoderConfig parsed(const OverriddenConfig& overridden) {
  return parse_decoder_config(json::parse(overridden.config_json));
}

std::string refused(const std::string& text, const RopeOverride& flags) {
  return message_of<ConfigError>([&] { override_rope(text, flags); });
}

void expect_mentions(const std::string& message, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(RopeOverride, WithoutFlagsTheTextStaysAsItWas) {
  const OverriddenConfig same = override_rope(config_text(), {});
  EXPECT_EQ(same.config_json, config_text());
  EXPECT_EQ(same.max_length, 64);
  EXPECT_EQ(override_rope("{}", {}).max_length, std::nullopt);
}

TEST(RopeOverride, ANameGetsItsFactorFromTheLengths) {
  for (const char* name : {"linear", "yarn"}) {
    const OverriddenConfig longer =
        override_rope(config_text(), {.rope_scaling = name, .max_model_len = 150});
    const DecoderConfig config = parsed(longer);
    EXPECT_EQ(rope_type_name(config.rope_scaling.type), name);
    EXPECT_EQ(config.rope_scaling.factor, 3.0) << "150 / 64, rounded up";
    EXPECT_EQ(config.max_position_embeddings, 150);
    EXPECT_EQ(longer.max_length, 150);
  }
  const DecoderConfig yarn =
      parsed(override_rope(config_text(), {.rope_scaling = "yarn", .max_model_len = 150}));
  EXPECT_EQ(yarn.rope_scaling.original_max_position_embeddings, 64);
  const DecoderConfig shorter =
      parsed(override_rope(config_text(), {.rope_scaling = "linear", .max_model_len = 30}));
  EXPECT_EQ(shorter.rope_scaling.factor, 1.0);
}

TEST(RopeOverride, UnderDynamicTheConfigKeepsTheLengthWhereTheRuleStarts) {
  const OverriddenConfig longer =
      override_rope(config_text(), {.rope_scaling = "dynamic", .max_model_len = 128});
  EXPECT_EQ(parsed(longer).rope_scaling.factor, 2.0);
  EXPECT_EQ(parsed(longer).max_position_embeddings, 64);
  EXPECT_EQ(longer.max_length, 128);
}

TEST(RopeOverride, TakesTheJsonOfAConfig) {
  const OverriddenConfig given =
      override_rope(config_text(), {.rope_scaling = R"({"type": "yarn", "factor": 4.0,
      "original_max_position_embeddings": 32, "beta_fast": 20})"});
  const DecoderConfig config = parsed(given);
  EXPECT_EQ(config.rope_scaling.type, RopeType::kYarn);
  EXPECT_EQ(config.rope_scaling.beta_fast, 20.0);
  EXPECT_EQ(config.rope_scaling.original_max_position_embeddings, 32);
  EXPECT_EQ(config.max_position_embeddings, 128);
  EXPECT_EQ(given.max_length, 128);
  const OverriddenConfig llama = override_rope(
      config_text(),
      {.rope_scaling = R"({"rope_type": "llama3", "low_freq_factor": 1, "high_freq_factor": 4})",
       .max_model_len = 200});
  EXPECT_EQ(parsed(llama).rope_scaling.factor, 4.0);
}

TEST(RopeOverride, MeasuresByTheOriginalLengthOfTheConfigsOwnRule) {
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 16}};
  EXPECT_EQ(parsed(override_rope(config_text(yarn), {.rope_scaling = "linear", .max_model_len = 32}))
                .rope_scaling.factor,
            2.0);
  const json linear = {{"type", "linear"}, {"factor", 4}};
  EXPECT_EQ(parsed(override_rope(config_text(linear), {.rope_scaling = "linear", .max_model_len = 128}))
                .rope_scaling.factor,
            8.0);
  const json dynamic = {{"type", "dynamic"}, {"factor", 4}};
  EXPECT_EQ(parsed(override_rope(config_text(dynamic), {.rope_scaling = "linear", .max_model_len = 128}))
                .rope_scaling.factor,
            2.0);
}

TEST(RopeOverride, KeepsTheSpellingAndTheta) {
  json nested = {{"rope_type", "default"}, {"rope_theta", 777.0}};
  json config = json::parse(config_text(nested, "rope_parameters"));
  config.erase("rope_theta");
  const OverriddenConfig changed =
      override_rope(config.dump(), {.rope_scaling = "linear", .max_model_len = 128});
  const json written = json::parse(changed.config_json);
  EXPECT_FALSE(written.contains("rope_scaling"));
  EXPECT_EQ(written["rope_parameters"]["rope_type"], "linear");
  EXPECT_EQ(parsed(changed).rope_theta, 777.0);
}

TEST(RopeOverride, DefaultTakesARuleOff) {
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 16}};
  const OverriddenConfig off = override_rope(config_text(yarn), {.rope_scaling = "default"});
  EXPECT_EQ(parsed(off).rope_scaling, ops::RopeScaling{});
  EXPECT_EQ(off.max_length, 16);
  expect_mentions(refused(config_text(yarn), {.rope_scaling = "default", .max_model_len = 17}),
                  {"--max_model_len 17"});
}

TEST(RopeOverride, AMaximumAloneChangesNoFrequency) {
  const OverriddenConfig shorter = override_rope(config_text(), {.max_model_len = 20});
  EXPECT_EQ(shorter.config_json, config_text());
  EXPECT_EQ(shorter.max_length, 20);
  expect_mentions(refused(config_text(), {.max_model_len = 65}),
                  {"--max_model_len 65", "max_position_embeddings 64", "--rope_scaling"});
  const std::string dynamic = config_text({{"type", "dynamic"}, {"factor", 2}});
  EXPECT_EQ(override_rope(dynamic, {.max_model_len = 128}).max_length, 128);
  expect_mentions(refused(dynamic, {.max_model_len = 129}), {"--max_model_len 129", "2 x 64 = 128"});
  EXPECT_EQ(override_rope("{}", {.max_model_len = 9}).max_length, 9);
  expect_mentions(refused(config_text(), {.max_model_len = 0}), {"--max_model_len must be positive"});
}

TEST(RopeOverride, SaysWhatIsMissingOrTooMuch) {
  expect_mentions(refused(config_text(), {.rope_scaling = "yarn"}),
                  {"--rope_scaling yarn", "needs --max_model_len", "max_model_len / 64", "JSON object"});
  expect_mentions(
      refused(config_text(), {.rope_scaling = R"({"type": "linear", "factor": 2})", .max_model_len = 129}),
      {"--max_model_len 129", "2 x 64 = 128"});
  for (const char* name : {"llama3", "longrope"})
    expect_mentions(refused(config_text(), {.rope_scaling = name, .max_model_len = 80}),
                    {name, "JSON object"});
  expect_mentions(refused("{}", {.rope_scaling = "yarn", .max_model_len = 80}),
                  {"no max_position_embeddings"});
  for (const char* factor : {"0", "-1", "1e300"}) {
    const std::string flag = std::string(R"({"type": "linear", "factor": )") + factor + "}";
    expect_mentions(refused(config_text(), {.rope_scaling = flag}), {"--rope_scaling", "factor"});
  }
  const auto broken = [](const char* flag) {
    return message_of<DataError>(
        [&] { override_rope(config_text(), {.rope_scaling = flag, .max_model_len = 80}); });
  };
  expect_mentions(broken("{\"type\": "), {"--rope_scaling"});
  expect_mentions(broken(R"({"rope_type": 3})"), {"--rope_scaling", "rope_type"});
  expect_mentions(message_of<NotSupported>(
                      [] { override_rope(config_text(), {.rope_scaling = "ntk", .max_model_len = 80}); }),
                  {"--rope_scaling 'ntk'", "linear, dynamic, yarn"});
  expect_mentions(message_of<NotSupported>([] {
                    override_rope(config_text(), {.rope_scaling = R"({"type": "ntk", "factor": 2})"});
                  }),
                  {"--rope_scaling", "'ntk'", "llama3, longrope"});
}

}  // namespace
}  // namespace apus::models
