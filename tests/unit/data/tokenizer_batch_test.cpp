#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/data/tokenizer.h"

namespace apus::data {
namespace {

std::shared_ptr<const Tokenizer> tokenizer() {
  return Tokenizer::from_json(R"({"model":{"vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}})", "t.json");
}

TEST(TokenizerBatch, GivesTheSameOnAnyNumberOfThreads) {
  std::vector<std::string> texts;
  for (int i = 0; i < 200; ++i) texts.push_back(std::string(static_cast<size_t>(i % 7), 'a') + "bab");
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  std::vector<std::vector<int32_t>> expected;
  for (const std::string& text : texts) expected.push_back(tokenizer()->encode(text));
  for (const int threads : {1, 2, 5, 300}) EXPECT_EQ(tokenizer()->encode_batch(views, {}, threads), expected);
  EXPECT_TRUE(tokenizer()->encode_batch({}, {}, 3).empty());
}

TEST(TokenizerBatch, ThrowsTheFirstTextsError) {
  std::vector<std::string_view> texts(50, "ab");
  texts[20] = "aa\xff";
  texts[40] = "\xff";
  for (const int threads : {1, 4}) {
    try {
      tokenizer()->encode_batch(texts, {}, threads);
      FAIL() << "accepted";
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("byte 2"), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(tokenizer()->encode_batch(texts, {}, 0), ConfigError);
}

}  // namespace
}  // namespace apus::data
