#include "data/tokenizer_json.h"

#include <string>

#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::data {
namespace {

TokenizerJson parse(const std::string& text) {
  return parse_tokenizer_json(text, "t.json");
}

std::string with_model(const std::string& model) {
  return R"({"version":"1.0","model":{)" + model + "}}";
}

void expect_data_error(const std::string& text, const std::string& part) {
  try {
    parse(text);
    FAIL() << "accepted " << text;
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(TokenizerJson, StreamsVocabularyAndMergesAndKeepsTheRest) {
  const TokenizerJson file = parse(
      R"({"added_tokens":[{"id":2,"content":"<s>"}],"normalizer":null,"model":{"type":"BPE","merges":["a b"],)"
      R"("vocab":{"a":0,"b":1,"ab":7},"unk_token":null},"decoder":{"type":"ByteLevel","x":[1,-2,2.5,true]}})");
  EXPECT_EQ(file.vocabulary.find("ab"), 7);
  EXPECT_EQ(file.vocabulary.size(), 3U);
  EXPECT_EQ(file.merges(), (BpeModel::NamedMerges{{"a", "b"}}));
  EXPECT_FALSE(file.document["model"].contains("vocab"));
  EXPECT_EQ(file.document["model"]["type"], "BPE");
  EXPECT_EQ(file.document["added_tokens"][0]["content"], "<s>");
  EXPECT_EQ(file.document["decoder"]["x"].dump(), "[1,-2,2.5,true]");
  EXPECT_TRUE(file.document["normalizer"].is_null());
}

TEST(TokenizerJson, ReadsMergesInBothForms) {
  const BpeModel::NamedMerges expected = {{"\u0120", "t"}, {"h", "e"}};
  EXPECT_EQ(parse(with_model(R"("merges":["\u0120 t","h e"])")).merges(), expected);
  EXPECT_EQ(parse(with_model(R"("merges":[["\u0120","t"],["h","e"]])")).merges(), expected);
}

TEST(TokenizerJson, PassesOverTheVocabularyOfAnotherFamily) {
  const TokenizerJson file =
      parse(with_model(R"("type":"Unigram","vocab":[["<unk>",0.0],["a",-1.5,{"k":[1]}]])"));
  EXPECT_FALSE(file.has_vocabulary);
  EXPECT_EQ(file.document["model"]["type"], "Unigram");
}

TEST(TokenizerJson, AVocabElsewhereIsOrdinaryContent) {
  const TokenizerJson file = parse(R"({"other":{"vocab":{"a":1},"merges":["x"]}})");
  EXPECT_EQ(file.vocabulary.size(), 0U);
  EXPECT_EQ(file.document["other"]["vocab"]["a"], 1);
}

TEST(TokenizerJson, RefusesMalformedTables) {
  expect_data_error(with_model(R"("vocab":{"a":-1})"), "'a' in model.vocab is -1");
  expect_data_error(with_model(R"("vocab":{"a":99999999999})"), "99999999999");
  expect_data_error(with_model(R"("vocab":{"a":"0"})"), "'a' in model.vocab is no number");
  expect_data_error(with_model(R"("vocab":{"a":[0]})"), "'a' in model.vocab is no number");
  expect_data_error(with_model(R"("vocab":{"a":1.5})"), "'a' in model.vocab is no number");
  expect_data_error(with_model(R"("merges":["ab"])"), "merge 0");
  expect_data_error(with_model(R"("merges":["a b","a b c"])"), "merge 1");
  expect_data_error(with_model(R"("merges":[["a"]])"), "merge 0");
  expect_data_error(with_model(R"("merges":[["a","b","c"]])"), "model.merges");
  expect_data_error(with_model(R"("merges":[[["a","b"]]])"), "model.merges");
  expect_data_error(with_model(R"("merges":[1])"), "model.merges");
}

TEST(TokenizerJson, RefusesWhatIsNoJsonOrNoObject) {
  expect_data_error("{\"model\":", "t.json");
  expect_data_error("[1]", "expected a JSON object");
  expect_data_error("", "t.json");
}

}  // namespace
}  // namespace apus::data
