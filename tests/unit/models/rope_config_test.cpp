#include "apus/models/rope_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "tests/unit/models/support/model_folder.h"

namespace apus::models {
namespace {

using apus::testing::message_of;
using nlohmann::json;
using ops::RopeScaling;
using ops::RopeType;

const RopeModel kModel{.head_dim = 8, .max_position_embeddings = 64, .source = "m/config.json"};

RopeConfig parse(const json& config) {
  return parse_rope(config, kModel);
}

/// Under the key of transformers 4.
json hub(const json& scaling) {
  return {{"rope_theta", 500.0}, {"rope_scaling", scaling}};
}

void expect_mentions(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
}

std::vector<RopeScaling> one_of_each() {
  return {{},
          {.type = RopeType::kLinear, .factor = 2},
          {.type = RopeType::kDynamic, .factor = 6},
          {.type = RopeType::kYarn,
           .factor = 4,
           .original_max_position_embeddings = 16,
           .attention_factor = 0.9,
           .beta_fast = 20,
           .beta_slow = 2,
           .truncate = false,
           .mscale = 1,
           .mscale_all_dim = 0.7},
          {.type = RopeType::kYarn, .factor = 4, .original_max_position_embeddings = 16},
          {.type = RopeType::kLlama3,
           .factor = 8,
           .original_max_position_embeddings = 16,
           .low_freq_factor = 2,
           .high_freq_factor = 3},
          {.type = RopeType::kLongrope,
           .factor = 4,
           .original_max_position_embeddings = 16,
           .short_factor = {1, 2, 3, 4},
           .long_factor = {5, 6, 7, 8}}};
}

TEST(RopeConfig, EveryRuleComesBackFromItsJsonInBothSpellings) {
  for (const RopeScaling& scaling : one_of_each()) {
    const json written = json::parse(rope_json(scaling).dump());
    SCOPED_TRACE(written.dump());
    const RopeConfig old = parse(hub(written));
    EXPECT_EQ(old.scaling, scaling);
    EXPECT_EQ(old.theta, 500.0);
    json nested = written.is_null() ? json{{"rope_type", "default"}} : written;
    nested["rope_theta"] = 700;
    const RopeConfig now = parse({{"rope_parameters", nested}, {"rope_theta", 500.0}});
    EXPECT_EQ(now.scaling, scaling);
    EXPECT_EQ(now.theta, 700.0);
  }
}

TEST(RopeConfig, SilenceIsTheDefaultRule) {
  for (const json& config :
       {json::object(), json{{"rope_scaling", nullptr}}, json{{"rope_scaling", json::object()}},
        hub({{"rope_type", "default"}}), hub({{"type", "default"}})}) {
    EXPECT_EQ(parse(config).scaling, RopeScaling{}) << config;
  }
  EXPECT_EQ(parse(json::object()).theta, 10000.0);
}

TEST(RopeConfig, TheNewKeyOfTheTypeCountsBeforeTheOld) {
  EXPECT_EQ(parse(hub({{"type", "linear"}, {"factor", 2}})).scaling.type, RopeType::kLinear);
  const json both = {{"type", "linear"}, {"rope_type", "dynamic"}, {"factor", 2}};
  EXPECT_EQ(parse(hub(both)).scaling.type, RopeType::kDynamic);
}

TEST(RopeConfig, FillsInLengthsAndFactorsAsTransformersDoes) {
  EXPECT_EQ(parse(hub({{"rope_type", "yarn"}, {"factor", 2}})).scaling.original_max_position_embeddings, 64);
  json top = hub({{"rope_type", "yarn"}, {"factor", 2}, {"original_max_position_embeddings", 32}});
  EXPECT_EQ(parse(top).scaling.original_max_position_embeddings, 32);
  top["original_max_position_embeddings"] = 16;
  EXPECT_EQ(parse(top).scaling.original_max_position_embeddings, 16) << "the config's own key counts first";
  top["rope_scaling"]["factor"] = nullptr;
  EXPECT_EQ(parse(top).scaling.factor, 4.0);
  const json zero = hub({{"rope_type", "yarn"}, {"factor", 2}, {"beta_fast", 0}, {"beta_slow", nullptr}});
  EXPECT_EQ(parse(zero).scaling.beta_fast, 32.0);
  EXPECT_EQ(parse(zero).scaling.beta_slow, 1.0);
}

TEST(RopeConfig, NamesTheKeyThatIsMissing) {
  const std::vector<std::pair<json, std::string>> cases = {
      {{{"rope_type", "linear"}}, "rope_scaling.factor"},
      {{{"rope_type", "dynamic"}}, "rope_scaling.factor"},
      {{{"rope_type", "llama3"}, {"factor", 8}, {"high_freq_factor", 4}}, "rope_scaling.low_freq_factor"},
      {{{"rope_type", "longrope"}, {"short_factor", {1, 1, 1, 1}}}, "rope_scaling.long_factor"}};
  for (const auto& [scaling, key] : cases) {
    expect_mentions(message_of<DataError>([&, &scaling = scaling] { parse(hub(scaling)); }),
                    {"m/config.json", key});
  }
  expect_mentions(message_of<DataError>([] { parse(hub("yarn")); }), {"rope_scaling"});
  expect_mentions(message_of<DataError>([] { parse(hub({{"rope_type", 3}})); }), {"rope_scaling.rope_type"});
}

TEST(RopeConfig, RefusesValuesThatGiveNoFrequencies) {
  const std::vector<std::pair<json, std::vector<std::string>>> cases = {
      {{{"rope_type", "linear"}, {"factor", 0}}, {"rope_scaling.factor", "positive", "it is 0"}},
      {{{"rope_type", "dynamic"}, {"factor", -2}}, {"rope_scaling.factor", "it is -2"}},
      {{{"rope_type", "yarn"}, {"factor", 2}, {"attention_factor", -1}}, {"attention_factor"}},
      {{{"rope_type", "yarn"}, {"factor", 2}, {"beta_fast", -1}}, {"beta_fast"}},
      {{{"rope_type", "yarn"}, {"factor", 2}, {"mscale", -1}}, {"mscale"}},
      {{{"rope_type", "yarn"}, {"factor", 2}, {"original_max_position_embeddings", 1}},
       {"original_max_position_embeddings", "it is 1"}},
      {{{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 4}},
       {"high_freq_factor 4", "low_freq_factor 4"}},
      {{{"rope_type", "longrope"}, {"short_factor", {1, 1, 1}}, {"long_factor", {1, 1, 1, 1}}},
       {"short_factor", "3 entries", "head_dim 8 needs 4"}},
      {{{"rope_type", "longrope"}, {"short_factor", {1, 1, 1, 0}}, {"long_factor", {1, 1, 1, 1}}},
       {"short_factor", "it is 0"}}};
  for (const auto& [scaling, parts] : cases) {
    expect_mentions(message_of<ConfigError>([&, &scaling = scaling] { parse(hub(scaling)); }), parts);
  }
  EXPECT_THROW(parse({{"rope_theta", 0.0}}), ConfigError);
  json yarn = hub({{"rope_type", "yarn"}, {"factor", 2}});
  yarn["rope_theta"] = 1.0;
  EXPECT_THROW(parse(yarn), ConfigError);
  EXPECT_THROW(parse_rope(hub({{"rope_type", "dynamic"}, {"factor", 2}}),
                          {.head_dim = 2, .max_position_embeddings = 9}),
               ConfigError);
}

TEST(RopeConfig, RefusesWhatIsNotBuiltByName) {
  const auto refused = [](const json& config) { return message_of<NotSupported>([&] { parse(config); }); };
  expect_mentions(
      refused(hub({{"rope_type", "longrop"}})),
      {"rope_scaling.rope_type", "longrop", "did you mean 'longrope'", "default, linear, dynamic"});
  expect_mentions(refused({{"partial_rotary_factor", 0.5}}), {"partial_rotary_factor", "0.5"});
  expect_mentions(refused(hub({{"rope_type", "linear"}, {"factor", 2}, {"partial_rotary_factor", 0.25}})),
                  {"rope_scaling.partial_rotary_factor"});
  expect_mentions(refused(hub({{"rope_type", "default"}, {"mrope_section", {1, 1, 2}}})), {"mrope_section"});
  expect_mentions(refused({{"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}}}),
                  {"rope_parameters.full_attention", "one rule for all layers"});
}

TEST(RopeConfig, TwoSpellingsMustAgree) {
  json config = hub({{"rope_type", "linear"}, {"factor", 2}});
  config["rope_parameters"] = config["rope_scaling"];
  EXPECT_EQ(parse(config).scaling.factor, 2.0);
  config["rope_parameters"]["factor"] = 3;
  expect_mentions(message_of<ConfigError>([&] { parse(config); }),
                  {"rope_scaling and rope_parameters", "differ"});
}

}  // namespace
}  // namespace apus::models
