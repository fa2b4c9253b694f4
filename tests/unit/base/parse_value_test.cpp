#include "apus/base/parse_value.h"

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "tests/unit/base/support/scratch_folder.h"

namespace apus {
namespace {

TEST(ParseValue, BooleansInAnyCase) {
  for (const char* text : {"true", "TRUE", "1", "Yes", "on"}) EXPECT_TRUE(parse_bool("bf16", text)) << text;
  for (const char* text : {"false", "False", "0", "NO", "off"})
    EXPECT_FALSE(parse_bool("bf16", text)) << text;
  for (const char* text : {"", "2", "t", "true ", "none"})
    EXPECT_THROW(parse_bool("bf16", text), ConfigError) << text;
}

TEST(ParseValue, IntegersAreWholeAndFit) {
  EXPECT_EQ(parse_int("k", "-17"), -17);
  EXPECT_EQ(parse_int("k", "+17"), 17);
  EXPECT_EQ(parse_int("k", "9223372036854775807"), INT64_MAX);
  for (const char* text : {"", "1.5", "1e3", " 1", "1 ", "0x10", "+-1", "+"}) {
    EXPECT_THROW(parse_int("k", text), ConfigError) << text;
  }
}

TEST(ParseValue, NumbersAreWholeAndFinite) {
  EXPECT_EQ(parse_double("k", "5e-5"), 5e-5);
  EXPECT_EQ(parse_double("k", "-.25"), -0.25);
  EXPECT_EQ(parse_double("k", "+3"), 3);
  for (const char* text : {"", "1,5", "nan", "inf", "-inf", "1e", "0.1f", "--1", "1e999"}) {
    EXPECT_THROW(parse_double("k", text), ConfigError) << text;
  }
}

TEST(ParseValue, ErrorsNameTheKeyAndTheText) {
  EXPECT_EQ(message_of<ConfigError>([] { parse_bool("--bf16", "maybe"); }),
            "--bf16: expected true or false, got 'maybe'");
  EXPECT_EQ(message_of<ConfigError>([] { parse_int("--seed", "x"); }),
            "--seed: expected an integer, got 'x'");
  EXPECT_EQ(message_of<ConfigError>([] { parse_int("--seed", "99999999999999999999"); }),
            "--seed: '99999999999999999999' does not fit 64 bits");
  EXPECT_EQ(message_of<ConfigError>([] { parse_double("--beta", "x"); }),
            "--beta: expected a number, got 'x'");
}

TEST(ParseValue, ListsSplitAtCommasAndSpaces) {
  const std::vector<std::string> expected = {"q_proj", "k_proj", "v_proj"};
  EXPECT_EQ(split_list("q_proj,k_proj,v_proj"), expected);
  EXPECT_EQ(split_list("  q_proj k_proj, ,v_proj,"), expected);
  EXPECT_TRUE(split_list(" , ").empty());
  EXPECT_TRUE(split_list("").empty());
}

}  // namespace
}  // namespace apus
