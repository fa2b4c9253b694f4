#include <chrono>
#include <string>

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace apus::peft
