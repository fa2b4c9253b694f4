#include "data/older_unicode.h"

#include <gtest/gtest.h>

namespace apus::data {
namespace {

TEST(OlderUnicode, MarksAreThoseOfItsVersion) {
  EXPECT_TRUE(is_older_mark(0x301));
  EXPECT_TRUE(is_older_mark(0x903));   // spacing
  EXPECT_TRUE(is_older_mark(0x20DD));  // enclosing
  EXPECT_FALSE(is_older_mark('a'));
  EXPECT_FALSE(is_older_mark(0x1ACF));  // a mark since Unicode 14
  EXPECT_TRUE(is_older_nonspacing_mark(0x301));
  EXPECT_FALSE(is_older_nonspacing_mark(0x903));
}

TEST(OlderUnicode, TablesEndWhereTheirRangesEnd) {
  EXPECT_FALSE(is_older_mark(0x2FF));
  EXPECT_TRUE(is_older_mark(0x300));
  EXPECT_TRUE(is_older_mark(0x36F));
  EXPECT_FALSE(is_older_mark(0x370));
  EXPECT_FALSE(is_older_mark(0x10FFFF));
  EXPECT_FALSE(is_older_mark(0));
}

TEST(OlderUnicode, ControlsArePrivateUnassignedAndFormatsToo) {
  EXPECT_TRUE(is_older_control(0));
  EXPECT_TRUE(is_older_control(0xAD));
  EXPECT_TRUE(is_older_control(0x200B));
  EXPECT_TRUE(is_older_control(0xFFFD));
  EXPECT_FALSE(is_older_control('\t'));
  EXPECT_FALSE(is_older_control('\n'));
  EXPECT_FALSE(is_older_control(' '));
}

TEST(OlderUnicode, PunctuationTakesSymbolsOfAsciiOnly) {
  for (const char character : {'!', '$', '+', '<', '^', '`', '|', '~'})
    EXPECT_TRUE(is_older_punctuation(static_cast<char32_t>(character))) << character;
  EXPECT_TRUE(is_older_punctuation(0x3002));
  EXPECT_FALSE(is_older_punctuation(0x20AC));
  EXPECT_FALSE(is_older_punctuation('a'));
}

TEST(OlderUnicode, NumbersAreOfAllThreeKinds) {
  EXPECT_TRUE(is_digits_number('7'));
  EXPECT_TRUE(is_digits_number(0x2167));
  EXPECT_TRUE(is_digits_number(0xBD));
  EXPECT_FALSE(is_digits_number('x'));
}

TEST(OlderUnicode, WordsHaveTheJoinersAndTheRangesAgree) {
  EXPECT_TRUE(in_regex_word('_'));
  EXPECT_TRUE(in_regex_word(0x4E2D));
  EXPECT_TRUE(in_regex_word(0x2167));
  EXPECT_TRUE(in_regex_word(0x24B6));  // circled letter
  EXPECT_FALSE(in_regex_word(0x2460));
  EXPECT_FALSE(in_regex_word(0xB2));
  char32_t last = 0;
  for (const auto& [first, end] : regex_word_ranges()) {
    EXPECT_LE(first, end);
    EXPECT_TRUE(last == 0 || first > last + 1);
    EXPECT_TRUE(in_regex_word(first) && in_regex_word(end));
    EXPECT_FALSE(in_regex_word(end + 1));
    last = end;
  }
}

TEST(OlderUnicode, DecompositionsAreThoseOfItsVersion) {
  EXPECT_TRUE(has_older_canonical(0xE9));
  EXPECT_FALSE(has_older_canonical('e'));
  EXPECT_FALSE(has_older_canonical(0xFB01));
  EXPECT_TRUE(has_older_compatibility(0xFB01));
  EXPECT_TRUE(has_older_compatibility(0x338F));
  EXPECT_FALSE(has_older_compatibility(0x32FF));  // assigned in Unicode 12.1
}

TEST(OlderUnicode, LowersLettersInRuns) {
  EXPECT_EQ(older_lower('A'), U'a');
  EXPECT_EQ(older_lower('Z'), U'z');
  EXPECT_EQ(older_lower('['), U'[');
  EXPECT_EQ(older_lower(0x100), char32_t{0x101});
  EXPECT_EQ(older_lower(0x101), char32_t{0x101});
  EXPECT_EQ(older_lower(0x1E9E), char32_t{0xDF});
  EXPECT_EQ(older_lower(0x130), char32_t{0x130});
  EXPECT_EQ(older_lower(0x10FFFF), char32_t{0x10FFFF});
  EXPECT_EQ(older_lower(0), char32_t{0});
}

}  // namespace
}  // namespace apus::data
