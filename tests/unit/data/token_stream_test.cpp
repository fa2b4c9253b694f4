#include "apus/data/token_stream.h"

#include <string>

#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::data {
namespace {

std::shared_ptr<const Tokenizer> tokenizer() {
  return Tokenizer::from_json(
      R"({"model":{"vocab":{"a":0,"Ã":1,"©":2},"merges":[]},"decoder":{"type":"ByteLevel"},)"
      R"("added_tokens":[{"id":3,"content":"<s>","special":true}]})",
      "t.json");
}

TEST(TokenStream, GivesTextOnceItIsFinal) {
  TokenStream stream(tokenizer());
  EXPECT_EQ(stream.push(0), "a");
  EXPECT_EQ(stream.push(1), "");
  EXPECT_EQ(stream.push(2), "\u00e9");
  EXPECT_EQ(stream.push(99), "") << "unknown";
  EXPECT_EQ(stream.push(3), "<s>");
  EXPECT_EQ(stream.flush(), "");
}

TEST(TokenStream, FlushGivesTheRestAndStartsOver) {
  TokenStream stream(tokenizer(), {.skip_special_tokens = true});
  EXPECT_EQ(stream.push(1), "");
  EXPECT_EQ(stream.push(3), "");
  EXPECT_EQ(stream.flush(), "\uFFFD");
  EXPECT_EQ(stream.push(2), "\uFFFD") << "nothing before it is remembered";
  EXPECT_EQ(stream.flush(), "");
}

TEST(TokenStream, NeedsATokenizer) {
  EXPECT_THROW(TokenStream(nullptr), ConfigError);
}

}  // namespace
}  // namespace apus::data
