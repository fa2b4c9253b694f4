#include "apus/data/tokenizer_config.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::data {
namespace {

namespace fs = std::filesystem;

const fs::path kTiny = APUS_SOURCE_DIR "/tests/data/cases/tokenizer/chatml-tiny";

class TokenizerFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        fs::path(::testing::TempDir()) /
        (std::string("apus_tokenizer_") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  void copy_tokenizer() { fs::copy_file(kTiny / "tokenizer.json", folder_ / "tokenizer.json"); }

  std::string load_error() {
    try {
      load_tokenizer_folder(folder_);
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }

  fs::path folder_;
};

TEST(TokenizerConfig, ReadsTokensAsStringsAndAsObjects) {
  const TokenizerConfig config = parse_tokenizer_config(
      R"({"bos_token":null,"eos_token":"<|im_end|>","pad_token":{"content":"<pad>","special":true},)"
      R"("additional_special_tokens":["<a>",{"content":"<b>"},"<|im_end|>"],"add_bos_token":false})",
      "c.json");
  EXPECT_EQ(config.bos_token, std::nullopt);
  EXPECT_EQ(config.eos_token, "<|im_end|>");
  EXPECT_EQ(config.pad_token, "<pad>");
  EXPECT_EQ(config.special_tokens, (std::vector<std::string>{"<|im_end|>", "<pad>", "<a>", "<b>"}));
  EXPECT_EQ(config.add_bos_token, false);
  EXPECT_EQ(config.add_eos_token, std::nullopt);
}

TEST(TokenizerConfig, TakesTheVeryLargeLengthForUnknown) {
  EXPECT_EQ(parse_tokenizer_config(R"({"model_max_length":32768})", "c").model_max_length, 32768);
  EXPECT_EQ(
      parse_tokenizer_config(R"({"model_max_length":1000000000000000019884624838656})", "c").model_max_length,
      std::nullopt);
  EXPECT_EQ(parse_tokenizer_config("{}", "c").model_max_length, std::nullopt);
  EXPECT_THROW(parse_tokenizer_config(R"({"model_max_length":0})", "c"), DataError);
}

TEST(TokenizerConfig, ReadsOneTemplateOrNamedOnes) {
  EXPECT_EQ(parse_tokenizer_config(R"({"chat_template":"T"})", "c").chat_template(), "T");
  const TokenizerConfig named = parse_tokenizer_config(
      R"({"chat_template":[{"name":"default","template":"D"},{"name":"tool_use","template":"U"}]})", "c");
  EXPECT_EQ(named.chat_template(), "D");
  EXPECT_EQ(named.chat_template("tool_use"), "U");
  EXPECT_EQ(named.chat_template("rag"), std::nullopt);
  EXPECT_THROW(parse_tokenizer_config(R"({"chat_template":3})", "c"), DataError);
  EXPECT_THROW(parse_tokenizer_config(R"({"chat_template":[{"name":"x"}]})", "c"), DataError);
}

TEST(TokenizerConfig, RefusesOtherTypes) {
  EXPECT_THROW(parse_tokenizer_config(R"({"eos_token":5})", "c"), DataError);
  EXPECT_THROW(parse_tokenizer_config(R"({"additional_special_tokens":"<a>"})", "c"), DataError);
  EXPECT_THROW(parse_tokenizer_config("[]", "c"), DataError);
  EXPECT_THROW(parse_tokenizer_config("{", "c"), DataError);
}

TEST_F(TokenizerFolderTest, ResolvesSpecialTokens) {
  copy_tokenizer();
  write("tokenizer_config.json",
        R"({"eos_token":"<|im_end|>","pad_token":"<|endoftext|>","chat_template":"T"})");
  const TokenizerFolder loaded = load_tokenizer_folder(folder_);
  EXPECT_EQ(loaded.eos_id, 2);
  EXPECT_EQ(loaded.pad_id, 0);
  EXPECT_EQ(loaded.bos_id, std::nullopt);
  EXPECT_EQ(loaded.chat_template, "T");
  EXPECT_EQ(loaded.tokenizer->token_to_id("<|im_start|>"), 1);
}

TEST_F(TokenizerFolderTest, TakesWhatTheConfigLacksFromTheSpecialTokensMap) {
  copy_tokenizer();
  write("tokenizer_config.json", R"({"eos_token":"<|im_end|>"})");
  write("special_tokens_map.json", R"({"eos_token":"<|im_start|>","pad_token":{"content":"<|endoftext|>"}})");
  const TokenizerFolder loaded = load_tokenizer_folder(folder_);
  EXPECT_EQ(loaded.eos_id, 2);
  EXPECT_EQ(loaded.pad_id, 0);
}

TEST_F(TokenizerFolderTest, ATemplateInAFileOfItsOwnGoesFirst) {
  copy_tokenizer();
  write("tokenizer_config.json", R"({"chat_template":"inside"})");
  write("chat_template.jinja", "{{ outside }}\n");
  write("additional_chat_templates/rag.jinja", "R");
  const TokenizerFolder loaded = load_tokenizer_folder(folder_);
  EXPECT_EQ(loaded.chat_template, "{{ outside }}\n");
  EXPECT_EQ(loaded.config.chat_template("rag"), "R");
}

TEST_F(TokenizerFolderTest, WorksWithoutAConfig) {
  copy_tokenizer();
  const TokenizerFolder loaded = load_tokenizer_folder(folder_);
  EXPECT_EQ(loaded.eos_id, std::nullopt);
  EXPECT_EQ(loaded.chat_template, std::nullopt);
}

TEST_F(TokenizerFolderTest, NamesWhatIsMissing) {
  std::string message = load_error();
  EXPECT_NE(message.find(folder_.string()), std::string::npos) << message;
  EXPECT_NE(message.find("has neither tokenizer.json nor tokenizer.model"), std::string::npos) << message;
  write("vocab.json", "{}");
  message = load_error();
  EXPECT_NE(message.find("vocab.json"), std::string::npos) << message;
  fs::remove_all(folder_);
  EXPECT_NE(load_error().find("is no folder"), std::string::npos);
}

TEST_F(TokenizerFolderTest, ReadsASentencePieceModelWhereThereIsNoTokenizerJson) {
  const fs::path source = APUS_SOURCE_DIR "/tests/data/cases/tokenizer/spm-bpe";
  fs::copy_file(source / "tokenizer.model", folder_ / "tokenizer.model");
  write("tokenizer_config.json",
        R"({"bos_token":"<s>","eos_token":"</s>","add_eos_token":true,)"
        R"("added_tokens_decoder":{"5001":{"content":"<b>"},"5000":{"content":"<a>","special":true}}})");
  const TokenizerFolder loaded = load_tokenizer_folder(folder_);
  EXPECT_EQ(loaded.bos_id, 1);
  EXPECT_EQ(loaded.tokenizer->encode("<a><b>"), (std::vector<int32_t>{1, 5000, 5001, 2}));
  EXPECT_TRUE(loaded.tokenizer->is_special(5000));
  EXPECT_FALSE(loaded.tokenizer->is_special(5001));
  write("tokenizer_config.json", R"({"added_tokens_decoder":{"x":{"content":"<b>"}}})");
  EXPECT_NE(load_error().find("added_tokens_decoder.x"), std::string::npos) << load_error();
  write("tokenizer_config.json", "{}");
  write("tokenizer.model", "x");
  EXPECT_NE(load_error().find("SentencePiece model"), std::string::npos) << load_error();
}

TEST_F(TokenizerFolderTest, RefusesASpecialTokenThatTheVocabularyLacks) {
  copy_tokenizer();
  write("tokenizer_config.json", R"({"eos_token":"<nowhere>"})");
  EXPECT_NE(load_error().find("eos_token is '<nowhere>'"), std::string::npos) << load_error();
}

}  // namespace
}  // namespace apus::data
