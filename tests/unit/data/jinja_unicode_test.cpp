#include "data/jinja_unicode.h"

#include <gtest/gtest.h>

namespace apus::data::jinja {
namespace {

TEST(JinjaUnicode, CopiesStrayBytesAsTheyAre) {
  const std::string broken = "a\xFF\xC3z\xE2\x82";
  std::string copy;
  for (const uint32_t cp : decode(broken)) append_code_point(copy, cp);
  EXPECT_EQ(copy, broken);
  EXPECT_EQ(count_code_points(broken), 6u);
  EXPECT_EQ(byte_offset(broken, 3), 3u);
  EXPECT_EQ(byte_offset(broken, 100), broken.size());
}

TEST(JinjaUnicode, CountsCodePoints) {
  EXPECT_EQ(count_code_points("a\xC3\xA9\xE6\x97\xA5\xF0\x9F\x98\x80"), 4u);
  EXPECT_EQ(byte_offset("\xC3\xA9x", 1), 2u);
  EXPECT_TRUE(is_ascii("abc"));
  EXPECT_FALSE(is_ascii("\xC3\xA9"));
}

TEST(JinjaUnicode, StripsWhiteSpaceOfAllKinds) {
  EXPECT_EQ(strip("\xE3\x80\x80 a\xC2\xA0\n", Side::kBoth), "a");
  EXPECT_EQ(strip(" a ", Side::kLeft), "a ");
  EXPECT_EQ(strip(" a ", Side::kRight), " a");
  EXPECT_EQ(strip("xyaxy", "yx", Side::kBoth), "a");
  EXPECT_EQ(strip("   ", Side::kBoth), "");
}

TEST(JinjaUnicode, ChangesCaseAsPythonDoes) {
  EXPECT_EQ(to_upper("stra\xC3\x9F"
                     "e"),
            "STRASSE");
  EXPECT_EQ(to_lower("\xCE\x91\xCE\xA3"), "\xCE\xB1\xCF\x82");
  EXPECT_EQ(capitalize("\xEF\xAC\x81X"), "Fix");
  EXPECT_EQ(to_title("it's o'clock"), "It'S O'Clock");
  EXPECT_EQ(swap_case("aB1"), "Ab1");
  EXPECT_EQ(case_fold("STRA\xC3\x9F"
                      "E"),
            "strasse");
}

TEST(JinjaUnicode, EndsLinesWherePythonDoes) {
  using Lines = std::vector<std::string_view>;
  EXPECT_EQ(split_lines("a\r\nb\vc\xE2\x80\xA8"
                        "d\n",
                        false),
            (Lines{"a", "b", "c", "d"}));
  EXPECT_EQ(split_lines("a\r\nb", true), (Lines{"a\r\n", "b"}));
  EXPECT_TRUE(split_lines("", false).empty());
}

TEST(JinjaUnicode, KnowsClasses) {
  EXPECT_TRUE(is_space(0x3000));
  EXPECT_FALSE(is_space(0x200B));
  EXPECT_FALSE(is_printable(0xAD));
  EXPECT_TRUE(is_printable(' '));
  EXPECT_TRUE(is_identifier(0xE9, true));
  EXPECT_FALSE(is_identifier('1', true));
  EXPECT_TRUE(is_digit(0xB2));
  EXPECT_FALSE(is_decimal(0xB2));
}

}  // namespace
}  // namespace apus::data::jinja
