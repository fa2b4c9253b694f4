#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "data/tokenizer_parts.h"

namespace apus::data {
namespace {

using Words = std::vector<std::string>;

TokenizerJson file_of(const std::string& pre_tokenizer) {
  return parse_tokenizer_json(R"({"pre_tokenizer":)" + pre_tokenizer + "}", "t.json");
}

Words words_of(const std::string& pre_tokenizer, const std::string& text,
               WordSpelling spelling = WordSpelling::kCharacters) {
  const auto built = build_pre_tokenizer(file_of(pre_tokenizer), spelling);
  Pieces pieces;
  pieces.reset(text, nullptr);
  pieces.starts_text = true;
  if (built) built->apply(pieces);
  Words words;
  for (const ByteRange& range : pieces.ranges) words.emplace_back(pieces.piece(range));
  return words;
}

Words split(const std::string& behavior, bool invert) {
  return words_of(R"({"type":"Split","pattern":{"String":"a"},"behavior":")" + behavior + R"(","invert":)" +
                      (invert ? "true}" : "false}"),
                  "baacaa");
}

TEST(BuildPreTokenizer, NoneGivesNone) {
  EXPECT_EQ(build_pre_tokenizer(file_of("null"), WordSpelling::kBytes), nullptr);
  EXPECT_EQ(build_pre_tokenizer(file_of(R"({"type":"Sequence","pretokenizers":[]})"), WordSpelling::kBytes),
            nullptr);
}

TEST(BuildPreTokenizer, SplitTakesEveryBehaviorAndItsInverse) {
  EXPECT_EQ(split("Removed", false), (Words{"b", "c"}));
  EXPECT_EQ(split("Removed", true), (Words{"a", "a", "a", "a"}));
  EXPECT_EQ(split("Isolated", false), (Words{"b", "a", "a", "c", "a", "a"}));
  EXPECT_EQ(split("MergedWithPrevious", false), (Words{"ba", "a", "ca", "a"}));
  EXPECT_EQ(split("MergedWithPrevious", true), (Words{"b", "a", "ac", "a", "a"}));
  EXPECT_EQ(split("MergedWithNext", false), (Words{"b", "a", "ac", "a", "a"}));
  EXPECT_EQ(split("MergedWithNext", true), (Words{"ba", "a", "ca", "a"}));
  EXPECT_EQ(split("Contiguous", false), (Words{"b", "aa", "c", "aa"}));
}

TEST(BuildPreTokenizer, ByteLevelSpellsOnlyForModelsOfCharacters) {
  const std::string step = R"({"type":"ByteLevel","add_prefix_space":true,"use_regex":true})";
  EXPECT_EQ(words_of(step, "a b"), (Words{"\u0120a", "\u0120b"}));
  EXPECT_EQ(words_of(step, "a b", WordSpelling::kBytes), (Words{" a", " b"}));
  EXPECT_EQ(words_of(R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})", "a b"),
            Words{"a\u0120b"});
}

TEST(BuildPreTokenizer, SmallerTypesSplitAsTheLibraryDoes) {
  EXPECT_EQ(words_of(R"({"type":"Digits","individual_digits":true})", "a12\u2167"),
            (Words{"a", "1", "2", "\u2167"}));
  EXPECT_EQ(words_of(R"({"type":"Digits","individual_digits":false})", "a12\u2167b3"),
            (Words{"a", "12\u2167", "b", "3"}));
  EXPECT_EQ(words_of(R"({"type":"Punctuation"})", "a.b!?"), (Words{"a", ".", "b", "!", "?"}));
  EXPECT_EQ(words_of(R"({"type":"Punctuation","behavior":"Removed"})", "a.b!?"), (Words{"a", "b"}));
  EXPECT_EQ(words_of(R"({"type":"Whitespace"})", "a1_ b.!"), (Words{"a1_", "b", ".!"}));
  EXPECT_EQ(words_of(R"({"type":"WhitespaceSplit"})", "a. \u3000b"), (Words{"a.", "b"}));
  EXPECT_EQ(words_of(R"({"type":"CharDelimiterSplit","delimiter":"-"})", "a--b-"), (Words{"a", "b"}));
  EXPECT_EQ(words_of(R"({"type":"BertPreTokenizer"})", "a, b\u3000c!?"),
            (Words{"a", ",", "b", "c", "!", "?"}));
  EXPECT_EQ(words_of(R"({"type":"FixedLength","length":2})", "abc"), (Words{"ab", "c"}));
}

TEST(BuildPreTokenizer, SequencesRunInOrder) {
  EXPECT_EQ(words_of(R"({"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},)"
                     R"({"type":"Split","pattern":{"String":"b"},"behavior":"MergedWithNext"}]})",
                     "ab cbd"),
            (Words{"a", "b", "c", "bd"}));
}

TEST(BuildPreTokenizer, StringsToIsolateComeLast) {
  TokenizerJson file = file_of(R"({"type":"WhitespaceSplit"})");
  file.isolated = {"<x>"};
  const auto built = build_pre_tokenizer(file, WordSpelling::kCharacters);
  Pieces pieces;
  pieces.reset("a<x>b <x>", nullptr);
  built->apply(pieces);
  EXPECT_EQ(pieces.ranges.size(), 4U);
}

TEST(EndsInByteLevel, WantsExactlyOneAtTheEnd) {
  const auto ends = [](const std::string& list) {
    return ends_in_byte_level(file_of(R"({"type":"Sequence","pretokenizers":[)" + list + "]}"));
  };
  const std::string byte_level = R"({"type":"ByteLevel"})";
  const std::string digits = R"({"type":"Digits"})";
  EXPECT_TRUE(ends(digits + "," + byte_level));
  EXPECT_FALSE(ends(byte_level + "," + digits));
  EXPECT_FALSE(ends(byte_level + "," + byte_level));
  EXPECT_FALSE(ends(""));
  EXPECT_TRUE(ends_in_byte_level(file_of(byte_level)));
}

TEST(BuildPreTokenizer, RefusesUnknownTypesAndMalformedOnes) {
  EXPECT_THROW(words_of(R"({"type":"UnicodeScripts"})", "a"), NotSupported);
  for (const char* step : {"{}", R"({"type":"Split","pattern":{"String":"a"},"behavior":"Odd"})",
                           R"({"type":"Split","behavior":"Removed"})", R"({"type":"FixedLength","length":0})",
                           R"({"type":"CharDelimiterSplit","delimiter":"ab"})", R"({"type":"Sequence"})"})
    EXPECT_THROW(words_of(step, "a"), DataError) << step;
}

}  // namespace
}  // namespace apus::data
