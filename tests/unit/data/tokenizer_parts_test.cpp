#include "data/tokenizer_parts.h"

#include <string>

#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::data {
namespace {

TokenizerJson file_of(const std::string& text) {
  return parse_tokenizer_json(text, "t.json");
}

TEST(TokenizerParts, AddedTokensHaveTheVocabularysIdOrTheNextFreeOne) {
  Vocabulary vocabulary;
  vocabulary.add("known", 0);
  vocabulary.add("other", 1);
  const auto tokens =
      build_added_tokens(file_of(R"({"added_tokens":[{"id":9,"content":"known"},{"id":8,"content":""},)"
                                 R"({"id":7,"content":"<s>","special":true},{"content":"<t>"}]})"),
                         vocabulary);
  ASSERT_EQ(tokens.size(), 3U);
  EXPECT_EQ(tokens[0].id, 0);
  EXPECT_TRUE(tokens[0].normalized);
  EXPECT_EQ(tokens[1].id, 2);
  EXPECT_FALSE(tokens[1].normalized);
  EXPECT_EQ(tokens[2].id, 3);
}

TEST(TokenizerParts, OfTwoAddedTokensWithOneContentTheLastCounts) {
  const auto tokens = build_added_tokens(
      file_of(R"({"added_tokens":[{"id":0,"content":"x"},{"id":1,"content":"x","lstrip":true}]})"), {});
  ASSERT_EQ(tokens.size(), 1U);
  EXPECT_EQ(tokens[0].id, 0);
  EXPECT_TRUE(tokens[0].lstrip);
}

TEST(TokenizerParts, AnUnkThatTheVocabularyLacksMattersOnlyOnceItIsNeeded) {
  TokenizerJson file = file_of(R"({"model":{"unk_token":"?","vocab":{"a":0},"merges":[]}})");
  const auto model = build_model(file);
  BpeScratch scratch;
  std::vector<int32_t> ids;
  model->encode("a", scratch, ids);
  EXPECT_EQ(ids, std::vector<int32_t>{0});
  EXPECT_THROW(model->encode("b", scratch, ids), DataError);
}

TEST(TokenizerParts, AModelMayLeaveOutItsType) {
  TokenizerJson file = file_of(R"({"model":{"vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}})");
  EXPECT_EQ(build_model(file)->vocabulary().size(), 3U);
  TokenizerJson without = file_of(R"({"model":{"type":"BPE","vocab":{"a":0}}})");
  EXPECT_THROW(build_model(without), DataError);
}

}  // namespace
}  // namespace apus::data
