#include "data/unicode_classes.h"

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace apus::data {
namespace {

const std::vector<std::string> kNames = {"Cn", "Cc", "Cf", "Co", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn",
                                         "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi",
                                         "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp"};

TEST(UnicodeClasses, EqualTheReferenceForEveryCodePoint) {
  std::vector<std::string> category(0x110000, "Cn");
  std::vector<bool> space(0x110000, false);
  std::ifstream file(APUS_SOURCE_DIR "/tests/data/cases/tokenizer/unicode/classes.tsv");
  std::string line;
  int rows = 0;
  while (std::getline(file, line)) {
    if (line.starts_with('#')) continue;
    std::istringstream fields(line);
    uint32_t first = 0, last = 0;
    std::string name;
    fields >> std::hex >> first >> last >> name;
    for (uint32_t code = first; code <= last; ++code) {
      if (name == "space")
        space[code] = true;
      else
        category[code] = name;
    }
    ++rows;
  }
  ASSERT_GT(rows, 3000);
  int wrong = 0;
  for (uint32_t code = 0; code < 0x110000; ++code) {
    const UnicodeClass traits = unicode_class(code);
    const std::string& name = category[code];
    const bool same = kNames[static_cast<size_t>(traits.category())] == name &&
                      traits.is_space() == space[code] && traits.is_letter() == (name[0] == 'L') &&
                      traits.is_number() == (name[0] == 'N') && traits.is_mark() == (name[0] == 'M');
    wrong += same ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0);
}

TEST(UnicodeClasses, SpacesAreTheWhiteSpaceProperty) {
  EXPECT_TRUE(unicode_class(0x85).is_space());
  EXPECT_TRUE(unicode_class(0x3000).is_space());
  for (const char32_t code : {0x180E, 0x200B, 0xFEFF, 0x1C})
    EXPECT_FALSE(unicode_class(code).is_space()) << static_cast<uint32_t>(code);
}

TEST(UnicodeClasses, AreEmptyAboveUnicode) {
  EXPECT_EQ(unicode_class(0x110000).category(), Category::kCn);
  EXPECT_TRUE(unicode_class(0x7FFFFFFF).is_nfc_boundary());
}

TEST(UnicodeClasses, WordCharactersIncludeMarksJoinersAndCircledLetters) {
  for (const char32_t code : {U'a', U'_', U'7', U'\u0301', U'\u200D', U'\u24B6', U'\U0001F130', U'\u2160'})
    EXPECT_TRUE(is_word_character(code)) << static_cast<uint32_t>(code);
  for (const char32_t code : {U'-', U' ', U'\u00B2', U'\u24B5', U'\U0001F600'})
    EXPECT_FALSE(is_word_character(code)) << static_cast<uint32_t>(code);
}

TEST(UnicodeClasses, PropertyRangesAreSortedAndAgreeWithTheTable) {
  size_t covered = 0;
  char32_t previous = 0;
  for (const auto& [first, last] : property_ranges("L")) {
    EXPECT_LE(first, last);
    EXPECT_TRUE(covered == 0 || first > previous + 1);
    EXPECT_TRUE(unicode_class(first).is_letter());
    EXPECT_FALSE(unicode_class(last + 1).is_letter());
    covered += last - first + 1;
    previous = last;
  }
  EXPECT_GT(covered, 130000U);
  EXPECT_EQ(property_ranges("Letter"), property_ranges("L"));
  EXPECT_EQ(property_ranges("d"), property_ranges("Nd"));
  EXPECT_TRUE(property_ranges("Han").empty());
}

TEST(UnicodeClasses, SpaceRangesAreTheTwentyFive) {
  size_t count = 0;
  for (const auto& [first, last] : property_ranges("s")) count += last - first + 1;
  EXPECT_EQ(count, 25U);
}

TEST(UnicodeClasses, CodePointsAreReadInBothDirections) {
  const std::string text = "a\u00e9\u4e2d\U0001F600";
  std::vector<char32_t> forward;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text.data() + at);
    forward.push_back(point.value);
    at += point.length;
  }
  EXPECT_EQ(forward, (std::vector<char32_t>{U'a', 0xE9, 0x4E2D, 0x1F600}));
  const char* last = code_point_before(text.data(), text.data() + text.size());
  EXPECT_EQ(code_point_at(last).value, 0x1F600U);
  EXPECT_EQ(code_point_at(code_point_before(text.data(), last)).value, 0x4E2DU);
}

}  // namespace
}  // namespace apus::data
