#include "data/tokenizer_parts.h"

#include <string>

#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::data {
namespace {

TokenizerJson file_of(const std::string& text) {
  return parse_tokenizer_json(text, "t.json");
}

TEST(TokenizerParts, NoNormalizerGivesNone) {
  EXPECT_EQ(build_normalizer(file_of("{}")), nullptr);
  EXPECT_EQ(build_normalizer(file_of(R"({"normalizer":null})")), nullptr);
  EXPECT_EQ(build_normalizer(file_of(R"({"normalizer":{"type":"Sequence","normalizers":[]}})")), nullptr);
}

TEST(TokenizerParts, SequencesMayHoldSequences) {
  const auto normalizer = build_normalizer(file_of(
      R"({"normalizer":{"type":"Sequence","normalizers":[{"type":"Sequence","normalizers":[{"type":"NFC"}]}]}})"));
  ASSERT_NE(normalizer, nullptr);
  EXPECT_FALSE(normalizer->keeps("e\u0301"));
}

TEST(TokenizerParts, ASequenceWithoutItsListIsBroken) {
  EXPECT_THROW(build_normalizer(file_of(R"({"normalizer":{"type":"Sequence"}})")), DataError);
  EXPECT_THROW(build_normalizer(file_of(R"({"normalizer":{}})")), DataError);
}

TEST(TokenizerParts, AStepAfterByteLevelIsRefused) {
  EXPECT_THROW(
      build_pre_tokenizer(file_of(
          R"({"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]}})")),
      NotSupported);
}

TEST(TokenizerParts, TemplatesPutTokensOnBothSides) {
  const auto steps = build_post_steps(
      file_of(R"({"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},)"
              R"({"Sequence":{"id":"A"}},{"SpecialToken":{"id":"</s>"}}],)"
              R"("special_tokens":{"<s>":{"ids":[1]},"</s>":{"ids":[2,3]}}}})"));
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0].before, std::vector<int32_t>{1});
  EXPECT_EQ(steps[0].after, (std::vector<int32_t>{2, 3}));
}

TEST(TokenizerParts, ByteLevelAfterTheModelTrimsOnlyWhenAsked) {
  EXPECT_TRUE(
      build_post_steps(file_of(R"({"post_processor":{"type":"ByteLevel","trim_offsets":false}})")).empty());
  const auto steps =
      build_post_steps(file_of(R"({"post_processor":{"type":"ByteLevel","trim_offsets":true}})"));
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0].kind, PostStep::Kind::kTrimOffsets);
  EXPECT_TRUE(steps[0].keep_first_space);
}

TEST(TokenizerParts, AddedTokensHaveTheVocabularysIdAndSpecialOnesComeFirst) {
  Vocabulary vocabulary;
  vocabulary.add("known", 4);
  const auto tokens =
      build_added_tokens(file_of(R"({"added_tokens":[{"id":9,"content":"known"},{"id":8,"content":""},)"
                                 R"({"id":7,"content":"<s>","special":true}]})"),
                         vocabulary);
  ASSERT_EQ(tokens.size(), 2U);
  EXPECT_EQ(tokens[0].id, 7);
  EXPECT_FALSE(tokens[0].normalized);
  EXPECT_EQ(tokens[1].id, 4);
  EXPECT_TRUE(tokens[1].normalized);
}

TEST(TokenizerParts, AModelMayLeaveOutItsType) {
  TokenizerJson file = file_of(R"({"model":{"vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}})");
  EXPECT_EQ(build_model(file)->vocabulary().size(), 3U);
  TokenizerJson without = file_of(R"({"model":{"type":"BPE","vocab":{"a":0}}})");
  EXPECT_THROW(build_model(without), DataError);
}

}  // namespace
}  // namespace apus::data
