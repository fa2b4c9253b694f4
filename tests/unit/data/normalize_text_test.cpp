#include "data/normalize_text.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::data {
namespace {

std::string normal(const Normalizer& step, const std::string& text) {
  AlignedText tracked = AlignedText::track(text, 0);
  step.apply(tracked);
  EXPECT_EQ(tracked.origin.size(), tracked.text.size());
  AlignedText plain{.text = text};
  step.apply(plain);
  EXPECT_EQ(plain.text, tracked.text);
  if (step.keeps(text)) {
    EXPECT_EQ(tracked.text, text);
  }
  return tracked.text;
}

// What each byte of the result stands for.
std::vector<ByteRange> origins(const Normalizer& step, const std::string& text) {
  AlignedText tracked = AlignedText::track(text, 10);
  step.apply(tracked);
  return tracked.origin;
}

using Origins = std::vector<ByteRange>;

TEST(PrependNormalizer, StandsForTheFirstCharacter) {
  const PrependNormalizer step("ab");
  EXPECT_EQ(normal(step, ""), "");
  EXPECT_EQ(normal(step, "c"), "abc");
  EXPECT_EQ(normal(step, "ab"), "abab");
  EXPECT_EQ(origins(step, "\u00e9"), (Origins{{10, 12}, {10, 12}, {10, 12}, {10, 12}}));
  EXPECT_TRUE(PrependNormalizer("").keeps("x"));
}

TEST(ReplaceNormalizer, ReplacesEveryMatch) {
  const ReplaceNormalizer step(find_literal("ab"), "ab", "x");
  EXPECT_EQ(normal(step, "abcabab"), "xcxx");
  EXPECT_EQ(normal(step, ""), "");
  EXPECT_EQ(normal(step, "aab"), "ax");
  EXPECT_TRUE(step.keeps("ba"));
  EXPECT_FALSE(step.keeps("ab"));
}

TEST(ReplaceNormalizer, WhatItPutsInStandsForTheMatchsLastByte) {
  EXPECT_EQ(origins(ReplaceNormalizer(find_literal("ab"), "ab", "xyz"), "cab"),
            (Origins{{10, 11}, {12, 13}, {12, 13}, {12, 13}}));
}

TEST(ReplaceNormalizer, MayTakeAwayAll) {
  EXPECT_EQ(normal(ReplaceNormalizer(find_literal(" "), " ", ""), "  "), "");
}

TEST(ReplaceNormalizer, DoesNotOutgrowItsBound) {
  const ReplaceNormalizer step(find_literal("a"), "a", "aa");
  AlignedText text{.text = "aaaa", .most_bytes = 8};
  step.apply(text);
  EXPECT_EQ(text.text.size(), 8U);
  EXPECT_THROW(step.apply(text), DataError);
}

TEST(StripNormalizer, TakesWhiteSpaceOfUnicode) {
  const StripNormalizer both({});
  EXPECT_EQ(normal(both, "\u3000 a b\u0085"), "a b");
  EXPECT_EQ(normal(both, "\u200ba\u200b"), "\u200ba\u200b");
  EXPECT_EQ(normal(both, " \n"), "");
  EXPECT_EQ(normal(StripNormalizer({.left = true, .right = false}), " a "), "a ");
  EXPECT_EQ(normal(StripNormalizer({.left = false, .right = true}), " a "), " a");
  EXPECT_EQ(normal(StripNormalizer({.left = false, .right = false}), " a "), " a ");
  EXPECT_EQ(origins(both, " a "), Origins({{11, 12}}));
}

TEST(LowercaseNormalizer, KnowsOlderUnicodeAndTheDottedI) {
  const LowercaseNormalizer step;
  EXPECT_EQ(normal(step, "\u00c0\u03a3\u0130\u01c5\u1e9e"), "\u00e0\u03c3i\u0307\u01c6\u00df");
  EXPECT_EQ(normal(step, "abc \u4e2d"), "abc \u4e2d");
  EXPECT_TRUE(step.keeps("abc \u4e2d"));
  EXPECT_FALSE(step.keeps("\u0130"));
  EXPECT_EQ(origins(step, "\u0130"), (Origins{{10, 12}, {10, 12}, {10, 12}}));
}

TEST(CharacterNormalizer, StripsMarksThatStandAlone) {
  const CharacterNormalizer marks(without_mark);
  EXPECT_EQ(normal(marks, "e\u0301\u0903a\u20dd"), "ea");
  EXPECT_EQ(normal(marks, "\u00e9"), "\u00e9");
  EXPECT_EQ(normal(marks, "\u0301"), "");
  // Only nonspacing ones.
  EXPECT_EQ(normal(CharacterNormalizer(without_nonspacing_mark), "e\u0301\u0903"), "e\u0903");
}

TEST(CharacterNormalizer, NmtKeepsSomeControlsAndTurnsOthersIntoSpaces) {
  EXPECT_EQ(normal(CharacterNormalizer(nmt_character),
                   "a\tb\u200bc\x01"
                   "e\ufeff\u2581\u00a0\x7f\r\n\ufffd"),
            "a b ce  \u00a0   ");
}

TEST(CharacterNormalizer, BertsCleaningDropsControlsFormatsAndTheUnreadable) {
  EXPECT_EQ(normal(CharacterNormalizer(clean_character), "b\u00adc\ufffdd\u200be\t\u00a0f\u0085g\u2028"),
            "bcde  fg ");
  EXPECT_EQ(normal(CharacterNormalizer(clean_character), std::string("a\0b", 3)), "ab");
}

TEST(ChineseSpacesNormalizer, PutsSpacesOnBothSides) {
  const ChineseSpacesNormalizer step;
  EXPECT_EQ(normal(step, "a\u4e2d\u6587b\u3040\U00020000"), "a \u4e2d  \u6587 b\u3040 \U00020000 ");
  EXPECT_TRUE(step.keeps("\u3042\uac00"));
  EXPECT_EQ(origins(step, "\u4e2d"), Origins(5, {10, 13}));
}

TEST(ByteLevelNormalizer, SpellsEveryByte) {
  const ByteLevelNormalizer step;
  EXPECT_EQ(normal(step, "a \n\u00e9"), "a\u0120\u010a\u00c3\u00a9");
  EXPECT_TRUE(step.keeps("abc!"));
  EXPECT_FALSE(step.keeps("a b"));
}

}  // namespace
}  // namespace apus::data
