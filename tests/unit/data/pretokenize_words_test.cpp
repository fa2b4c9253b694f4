#include "data/pretokenize.h"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/unicode.h"
#include "data/pretokenize_regex.h"

namespace apus::data {
namespace {

using Words = std::vector<std::string>;

Words words_of(const PreTokenizer& step, const std::string& text) {
  Pieces pieces;
  pieces.reset(text, nullptr);
  step.apply(pieces);
  Words words;
  for (const ByteRange& range : pieces.ranges) words.emplace_back(pieces.piece(range));
  return words;
}

Words words_of(WordSplitter splitter, const std::string& text) {
  return words_of(KnownSplit(splitter), text);
}

TEST(WordSplitters, CutEnglishAsGpt2) {
  EXPECT_EQ(words_of(split_gpt2, "Hello world, it's  fine"),
            (Words{"Hello", " world", ",", " it", "'s", " ", " fine"}));
  EXPECT_EQ(words_of(split_gpt2, "IT'S 1234\n\n x "), (Words{"IT", "'", "S", " 1234", "\n\n", " x", " "}));
}

TEST(WordSplitters, CutNumbersOneByOneForQwen2AndByThreeForLlama3) {
  EXPECT_EQ(words_of(split_qwen2, "a 123"), (Words{"a", " ", "1", "2", "3"}));
  EXPECT_EQ(words_of(split_llama3, "a 12345"), (Words{"a", " ", "123", "45"}));
}

TEST(WordSplitters, TakeContractionsInAnyCaseWithTheLongS) {
  EXPECT_EQ(words_of(split_qwen2, "IT'S it'\u017f WE'Ll"),
            (Words{"IT", "'S", " it", "'\u017f", " WE", "'Ll"}));
}

TEST(WordSplitters, KeepNewlinesWithWhatStandsBeforeThem) {
  EXPECT_EQ(words_of(split_qwen2, "a);\r\n\n  \t b"), (Words{"a", ");\r\n\n", "  \t", " b"}));
  EXPECT_EQ(words_of(split_qwen2, "x \n \n  y"), (Words{"x", " \n \n", " ", " y"}));
}

TEST(WordSplitters, KnowTheirOwnPatternsOnly) {
  EXPECT_EQ(known_splitter(gpt2_pattern()), &split_gpt2);
  EXPECT_EQ(known_splitter(R"(\s+)"), nullptr);
}

// PCRE2 with the same table is the reference for every hand-written splitter.
TEST(WordSplitters, EqualTheRegularExpressionOnRandomText) {
  const std::string tail = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string head = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)";
  const std::vector<std::string> patterns = {std::string(gpt2_pattern()), head + R"(\p{N})" + tail,
                                             head + R"(\p{N}{1,3})" + tail};
  const std::u32string alphabet =
      U"''sStTrReEvVlLdDmM\u017faZ09 \u00b2  "
      U"\t\n\r.,;\u00e9\u4e2d\u3000\u0085\u0301\u180e\U0001F600\u2167\u200d";
  for (const std::string& pattern : patterns) {
    const WordSplitter splitter = known_splitter(pattern);
    ASSERT_NE(splitter, nullptr) << pattern;
    const PatternSplit reference(find_regex(pattern, "test"), {});
    std::mt19937 random(11);
    for (int round = 0; round < 3000; ++round) {
      std::u32string points;
      const size_t length = random() % 14;
      for (size_t i = 0; i < length; ++i) points += alphabet[random() % alphabet.size()];
      const std::string text = to_utf8(points);
      ASSERT_EQ(words_of(splitter, text), words_of(reference, text)) << pattern << " round " << round;
    }
  }
}

// Letters are read eight bytes at a time: every length, and what follows, at the text's end and before it.
TEST(WordSplitters, EndARunOfLettersAtTheFirstOther) {
  const std::vector<std::string> others = {"1", "@", "[", "`", "{", "\x7f", "\n", "\u00d7", "\u3002", "'"};
  const std::vector<std::string> letters = {"a", "z", "A", "Z", "\u00e9", "\u4e2d", "\u00b5"};
  const PatternSplit reference(find_regex(std::string(gpt2_pattern()), "test"), {});
  for (const std::string& letter : letters) {
    for (size_t length = 1; length <= 20; ++length) {
      std::string word = "mNoPqRsTuVwXyZaBcDeF";
      word.replace(length - 1, std::string::npos, letter);
      EXPECT_EQ(words_of(split_qwen2, word), Words{word});
      EXPECT_EQ(words_of(split_gpt2, " " + word), Words{" " + word});
      for (const std::string& other : others) {
        EXPECT_EQ(words_of(split_qwen2, word + other), (Words{word, other})) << word << other;
        EXPECT_EQ(words_of(split_gpt2, word + other + "12345678"),
                  words_of(reference, word + other + "12345678"));
      }
    }
  }
}

}  // namespace
}  // namespace apus::data
