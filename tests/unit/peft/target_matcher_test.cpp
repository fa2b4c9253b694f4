#include <chrono>
#include <string>

#include <gtest/gtest.h>

#include <cmath>

#include "apus/base/error.h"
#include "apus/peft/lora_config.h"
#include "tests/unit/peft/support/tiny_model.h"

namespace apus::peft {
namespace {

using testing::message_of;

const std::string kPath = "model.layers.1.self_attn.q_proj";

TEST(TargetMatcher, NamesMatchWholePathsAndTheirEnds) {
  EXPECT_TRUE(target_matcher(LoraTargets::from_names({"q_proj"}))(kPath));
  EXPECT_TRUE(target_matcher(LoraTargets::from_names({"self_attn.q_proj"}))(kPath));
  EXPECT_TRUE(target_matcher(LoraTargets::from_names({kPath}))(kPath));
  EXPECT_FALSE(target_matcher(LoraTargets::from_names({"proj"}))(kPath)) << "only whole components";
  EXPECT_FALSE(target_matcher(LoraTargets::from_names({"self_attn"}))(kPath));
}

TEST(TargetMatcher, RegularExpressionsMatchTheWholePath) {
  const auto matches = [](const std::string& regex) {
    return target_matcher({.names = {}, .regex = regex, .all_linear = false})(kPath);
  };
  EXPECT_TRUE(matches(R"(.*\.(q|v)_proj)"));
  EXPECT_TRUE(matches(R"(model\.layers\.\d+\.self_attn\.(?:q_proj|k_proj))"));
  EXPECT_TRUE(matches(R"(^model\.layers\.(?!0\.).*q_proj$)"));
  EXPECT_FALSE(matches("q_proj"));
  EXPECT_FALSE(matches(R"(model\.layers\.0\..*)"));
}

TEST(TargetMatcher, AllLinearLeavesOutTheHead) {
  const auto matches = target_matcher(LoraTargets::from_names({"All-Linear"}));
  EXPECT_TRUE(matches(kPath));
  EXPECT_FALSE(matches("lm_head"));
  EXPECT_FALSE(matches("language_model.lm_head"));
}

TEST(TargetMatcher, RefusesTargetsThatSayNothingOrTwoThings) {
  EXPECT_THROW(target_matcher({}), ConfigError);
  EXPECT_THROW(target_matcher({.names = {"q_proj"}, .regex = ".*", .all_linear = false}), ConfigError);
}

TEST(TargetMatcher, RefusesRegularExpressionsItCannotHonour) {
  for (const std::string& regex :
       {std::string("(q_proj"), std::string("(?P<a>q)_proj"), std::string("(?<=x)q"),
        std::string(R"((q)_\1)"), std::string(5000, '(')}) {
    const std::string message =
        message_of<ConfigError>([&] { target_matcher({.names = {}, .regex = regex, .all_linear = false}); });
    EXPECT_NE(message.find("target_modules"), std::string::npos) << regex.substr(0, 20);
  }
}

TEST(TargetMatcher, AHostileRegularExpressionTakesNoExponentialTime) {
  const auto matches = target_matcher({.names = {}, .regex = "(a|a)*(a+)+(a*)*b", .all_linear = false});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(matches(std::string(200, 'a')));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

TEST(LoraMatcher, LeavesOutWhatIsExcludedOrLiesInAModuleToSave) {
  const LoraConfig config{.targets = LoraTargets::from_names({"q_proj", "up_proj", "lm_head"}),
                          .modules_to_save = {"mlp", "lm_head"},
                          .scope = {.exclude_names = {"1.self_attn.q_proj"}}};
  const auto matches = lora_matcher(config);
  EXPECT_TRUE(matches("model.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(matches("model.layers.1.self_attn.q_proj"));
  EXPECT_TRUE(matches("model.layers.11.self_attn.q_proj")) << "only whole components";
  EXPECT_FALSE(matches("model.layers.0.mlp.up_proj")) << "below a module to save";
  EXPECT_FALSE(matches("lm_head"));
}

TEST(LoraMatcher, KeepsToLayersAsPeftFindsThem) {
  LoraConfig config{.targets = LoraTargets::from_names({"q_proj", "model.layers.7.k_proj", "k_proj"}),
                    .scope = {.layers = {1, 3}}};
  auto matches = lora_matcher(config);
  EXPECT_TRUE(matches("model.layers.3.self_attn.q_proj"));
  EXPECT_FALSE(matches("model.layers.2.self_attn.q_proj"));
  EXPECT_FALSE(matches("head.q_proj")) << "has no layer";
  EXPECT_FALSE(matches("layers.3.q_proj")) << "two components must stand before the index";
  EXPECT_TRUE(matches("model.layers.1.experts.5.q_proj")) << "the first index counts";
  EXPECT_FALSE(matches("model.layers.5.experts.1.q_proj"));
  EXPECT_TRUE(matches("model.layers.7.k_proj")) << "a whole path among the names is taken in any layer";
  config.scope.layers_pattern = {"blocks", "encoder.h"};
  matches = lora_matcher(config);
  EXPECT_TRUE(matches("blocks.3.q_proj"));
  EXPECT_TRUE(matches("model.encoder.h.1.q_proj"));
  EXPECT_FALSE(matches("model.layers.3.q_proj"));
}

TEST(LoraMatcher, RefusesLayersWithoutNames) {
  LoraConfig config{.targets = {.names = {}, .regex = ".*q_proj"}, .scope = {.layers = {1}}};
  EXPECT_THROW(lora_matcher(config), ConfigError);
  config.scope = {.exclude_regex = "("};
  EXPECT_THROW(lora_matcher(config), ConfigError);
}

TEST(LoraSizes, TheFirstPatternThatFitsAPathsEndCounts) {
  const LoraConfig config{
      .r = 8,
      .lora_alpha = 16,
      .use_rslora = true,
      .rank_pattern = {{"0.self_attn.q_proj", 2}, {"q_proj", 4}, {"layers.[12].*o_proj", 16}},
      .alpha_pattern = {{"(k|v)_proj", 3}}};
  const auto size_of = lora_sizes(config);
  EXPECT_EQ(size_of("model.layers.0.self_attn.q_proj").r, 2);
  EXPECT_EQ(size_of("model.layers.1.self_attn.q_proj").r, 4);
  EXPECT_EQ(size_of("model.layers.1.self_attn.o_proj").r, 16);
  EXPECT_EQ(size_of("model.layers.0.self_attn.o_proj").r, 8);
  EXPECT_EQ(size_of("model.layers.0.self_attn.qq_proj").r, 8) << "a component's end is no component";
  EXPECT_EQ(size_of("model.layers.0.self_attn.v_proj").alpha, 3);
  EXPECT_DOUBLE_EQ(size_of("model.layers.1.self_attn.q_proj").scaling, 8.0) << "16 / sqrt(4)";
  EXPECT_DOUBLE_EQ(size_of("model.layers.0.self_attn.v_proj").scaling, 3 / std::sqrt(8.0));
}

TEST(LoraSizes, RefusesRanksAndPatternsThatCannotBe) {
  EXPECT_THROW(lora_sizes({.rank_pattern = {{"q_proj", 0}}}), ConfigError);
  EXPECT_THROW(lora_sizes({.rank_pattern = {{"(", 2}}}), ConfigError);
  EXPECT_THROW(lora_sizes({.r = 0}), ConfigError);
}

}  // namespace
}  // namespace apus::peft
