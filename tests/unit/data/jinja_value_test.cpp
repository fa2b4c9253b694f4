#include "data/jinja_value.h"

#include <gtest/gtest.h>

#include <cmath>

#include "data/jinja_bigint.h"
#include "data/jinja_case_table.h"
#include "data/jinja_number.h"
#include "data/jinja_split.h"
#include "data/jinja_text.h"
#include "data/jinja_unescape.h"
#include "data/jinja_wrap.h"

namespace apus::data::jinja {
namespace {

TEST(JinjaValue, ComparesNumbersAcrossTypes) {
  EXPECT_TRUE(equal(Value::integer(1), Value::real(1.0)));
  EXPECT_TRUE(equal(Value::boolean(true), Value::integer(1)));
  EXPECT_FALSE(equal(Value::integer(1), Value::string("1")));
  EXPECT_TRUE(less(Value::integer(1), Value::real(1.5)));
  EXPECT_EQ(compare_numbers(Value::real(NAN), Value::integer(1)), 2);
  EXPECT_EQ(hash(Value::integer(3)), hash(Value::real(3.0)));
  EXPECT_EQ(hash(Value::boolean(true)), hash(Value::integer(1)));
}

TEST(JinjaValue, RefusesListsAsKeys) {
  EXPECT_THROW(hash(Value::list({})), Failure);
  EXPECT_THROW(hash(Value::tuple({Value::list({})})), Failure);
  EXPECT_NO_THROW(hash(Value::tuple({Value::integer(1)})));
}

TEST(JinjaValue, FindsKeysInSmallAndLargeDicts) {
  DictObject dict;
  for (int i = 0; i < 100; ++i) {
    dict.set(Value::string("key" + std::to_string(i)), Value::integer(i));
    dict.set(Value::integer(i), Value::integer(-i));
  }
  dict.set(Value::string("key7"), Value::integer(700));
  EXPECT_EQ(dict.entries.size(), 200u);
  EXPECT_EQ(dict.find("key7")->as_integer(), 700);
  EXPECT_EQ(dict.find("key99")->as_integer(), 99);
  EXPECT_EQ(dict.find(Value::real(42.0))->as_integer(), -42);
  EXPECT_EQ(dict.find("absent"), nullptr);
  EXPECT_EQ(dict.find(Value::integer(100)), nullptr);
  EXPECT_EQ(dict.entries.front().first.text(), "key0");
}

TEST(JinjaValue, MeasuresNesting) {
  const Value inner = Value::list({Value::integer(1), Value::string(std::string(640, 'x'))});
  EXPECT_EQ(extent(inner).depth, 1);
  EXPECT_EQ(extent(inner).weight, 1u + 1 + 11);
  EXPECT_EQ(extent(Value::tuple({inner, inner})).depth, 2);
  EXPECT_EQ(extent(Value::tuple({inner, inner})).weight, 1u + 2 * 13);
}

TEST(JinjaValue, SaysWhyItIsUndefined) {
  EXPECT_EQ(undefined_message(Value::undefined_name(Value::string("x"))), "'x' is undefined");
  EXPECT_EQ(undefined_message(Value::undefined_attribute(Value::string("y"), Type::kString)),
            "'str object' has no attribute 'y'");
  EXPECT_EQ(undefined_message(Value::undefined_hint("why")), "why");
  EXPECT_FALSE(truth(Value()));
}

TEST(JinjaBigInt, ParsesAndPrints) {
  for (const char* digits :
       {"0", "1", "4294967296", "18446744073709551616", "123456789012345678901234567890"}) {
    EXPECT_EQ(BigInt::parse(digits)->to_string(), digits);
  }
  EXPECT_EQ(BigInt::parse("ff", 16)->to_int64(), 255);
  EXPECT_EQ(BigInt(INT64_MIN).to_string(), "-9223372036854775808");
  EXPECT_FALSE(BigInt::parse("12x").has_value());
  EXPECT_FALSE(BigInt::parse("").has_value());
}

TEST(JinjaBigInt, DividesRoundingDown) {
  const auto big = [](const char* digits) { return *BigInt::parse(digits); };
  BigInt q;
  BigInt r;
  BigInt::divide(-big("100000000000000000000"), big("7"), q, r);
  EXPECT_EQ(q.to_string(), "-14285714285714285715");
  EXPECT_EQ(r.to_string(), "5");
  BigInt::divide(big("100000000000000000000"), -big("30000000000000000000"), q, r);
  EXPECT_EQ(q.to_string(), "-4");
  EXPECT_EQ(r.to_string(), "-20000000000000000000");
}

TEST(JinjaBigInt, ConvertsDoubles) {
  EXPECT_EQ(BigInt::from_double(1e20).to_string(), "100000000000000000000");
  EXPECT_EQ(BigInt::from_double(-3.99).to_string(), "-3");
  EXPECT_EQ(BigInt::from_double(0x1p100).to_double(), 0x1p100);
  EXPECT_EQ(BigInt::parse("9007199254740993")->to_double(), 9007199254740992.0);
  EXPECT_TRUE(BigInt(INT64_MIN).fits_int64());
  EXPECT_FALSE((BigInt(INT64_MAX) + BigInt(1)).fits_int64());
}

TEST(JinjaText, WritesFloatsAsPythonDoes) {
  EXPECT_EQ(repr_float(1e16), "1e+16");
  EXPECT_EQ(repr_float(1e-5), "1e-05");
  EXPECT_EQ(repr_float(123456789012345.6), "123456789012345.6");
  EXPECT_EQ(repr_float(-0.0), "-0.0");
  EXPECT_EQ(repr_float(5e-324), "5e-324");
  EXPECT_EQ(repr_float(NAN), "nan");
  EXPECT_EQ(repr_float(-INFINITY), "-inf");
}

TEST(JinjaText, ChoosesQuotes) {
  EXPECT_EQ(repr_string("it's"), "\"it's\"");
  EXPECT_EQ(repr_string("\"it's\""), "'\"it\\'s\"'");
  EXPECT_EQ(repr_string("\x01\xC2\xA0"), "'\\x01\\xa0'");
}

TEST(JinjaUnescape, SaysWhichEscapeIsBroken) {
  std::string reason;
  EXPECT_EQ(unescape("a\\n\\u00e9\\ud83d\\ude00", reason), "a\n\xC3\xA9\xF0\x9F\x98\x80");
  EXPECT_FALSE(unescape("\\u12", reason).has_value());
  EXPECT_NE(reason.find("4 hexadecimal digits"), std::string::npos);
  EXPECT_FALSE(unescape("\\N{DASH}", reason).has_value());
  EXPECT_EQ(normalize_newlines("a\r\nb\rc\n"), "a\nb\nc\n");
}

TEST(JinjaNumber, ReadsTextsAsPythonDoes) {
  EXPECT_EQ(parse_float(Value::string(" 1_0.5e1 ")), 105.0);
  EXPECT_FALSE(parse_float(Value::string("0x10")).has_value());
  EXPECT_EQ(parse_integer(Value::string("-0b101"), 2)->as_integer(), -5);
  EXPECT_FALSE(parse_integer(Value::string("1__0"), 16).has_value());
  EXPECT_EQ(format_file_size(1536, true), "1.5 KiB");
}

TEST(JinjaSplit, SplitsFromBothEnds) {
  using Parts = std::vector<std::string_view>;
  EXPECT_EQ(split_spaces("  a b  c ", 1), (Parts{"a", "b  c "}));
  EXPECT_EQ(split_spaces_right("  a b  c ", 1), (Parts{"  a b", "c"}));
  EXPECT_EQ(split_right("a,b,c", ",", 1), (Parts{"a,b", "c"}));
}

TEST(JinjaWrap, BreaksLines) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(wrap_line("one two three", {.width = 7}), (Lines{"one two", "three"}));
  EXPECT_EQ(strip_tags("<p>a &lt; <b>b</b></p>"), "a < b");
  EXPECT_EQ(percent_encode("a /\xC3\xA9", "/"), "a%20/%C3%A9");
}

TEST(JinjaCaseTable, HoldsWhatGrows) {
  EXPECT_STREQ(find_special_case(0xDF)->upper, "SS");
  EXPECT_EQ(find_special_case('a'), nullptr);
}

}  // namespace
}  // namespace apus::data::jinja
