#include "data/sentencepiece.h"

#include <bit>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/data/tokenizer.h"

namespace apus::data {
namespace {

using Ids = std::vector<int32_t>;

// Writes the protobuf of a model.
std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 128; value >>= 7) out += static_cast<char>((value & 127) | 128);
  return out + static_cast<char>(value);
}
std::string number(int field, uint64_t value) {
  return varint(static_cast<uint64_t>(field) << 3) + varint(value);
}
std::string bytes(int field, const std::string& content) {
  return varint(static_cast<uint64_t>(field) << 3 | 2) + varint(content.size()) + content;
}
std::string real(int field, float value) {
  std::string out = varint(static_cast<uint64_t>(field) << 3 | 5);
  const auto bits = std::bit_cast<uint32_t>(value);
  for (int i = 0; i < 4; ++i) out += static_cast<char>(bits >> (8 * i) & 0xFF);
  return out;
}
std::string piece(const std::string& name, float score, uint64_t type = 1) {
  return bytes(1, bytes(1, name) + real(2, score) + number(3, type));
}

constexpr uint64_t kUnknown = 2, kControl = 3, kUserDefined = 4, kByte = 6;

struct Settings {
  uint64_t model_type = 2;
  std::string trainer = {};
  std::string normalizer = number(3, 1) + number(4, 0) + number(5, 1);
  std::string more_pieces = {};
};

// <unk> <s> </s> _ a b ab _a _ab c
std::string model(const Settings& settings = {}) {
  return piece("<unk>", 0, kUnknown) + piece("<s>", 0, kControl) + piece("</s>", 0, kControl) +
         piece("\u2581", -9) + piece("a", -10) + piece("b", -11) + piece("ab", -1) + piece("\u2581a", -2) +
         piece("\u2581ab", -3) + piece("c", -12) + settings.more_pieces +
         bytes(2, number(3, settings.model_type) + settings.trainer) + bytes(3, settings.normalizer);
}

std::shared_ptr<const Tokenizer> load(const std::string& content, const SentencePieceOptions& options = {}) {
  return Tokenizer::from_sentencepiece(content, "t.model", options);
}

template <typename Expected>
std::string error_of(const std::string& content, const SentencePieceOptions& options = {}) {
  try {
    load(content, options);
    return "none";
  } catch (const Expected& error) {
    return error.what();
  }
}

TEST(SentencePiece, MergesByScore) {
  const auto tokenizer = load(model());
  EXPECT_EQ(tokenizer->encode("ab"), Ids{8});
  EXPECT_EQ(tokenizer->encode("ac b"), (Ids{7, 9, 3, 5}));
  EXPECT_EQ(tokenizer->encode(""), Ids{});
  EXPECT_EQ(tokenizer->vocab_size(), 10U);
}

TEST(SentencePiece, RanksEqualScoresByTheLongerLeftSide) {
  const std::string source = "t.model";
  const TokenizerJson file = read_sentencepiece(model(), source, {});
  std::vector<std::string> merges;
  for (const auto& [left, right] : file.merges())
    merges.push_back(std::string(left) + "+" + std::string(right));
  EXPECT_EQ(merges, (std::vector<std::string>{"a+b", "\u2581+a", "\u2581a+b", "\u2581+ab"}));
}

TEST(SentencePiece, UnknownCharactersAreOneUnkOrTheirBytes) {
  EXPECT_EQ(load(model())->encode("a\u4e2d\u6587"), (Ids{7, 0}));
  std::string all;
  constexpr const char* kDigits = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte)
    all += piece(std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + ">", 0, kByte);
  const auto tokenizer = load(model({.trainer = number(35, 1), .more_pieces = all}));
  EXPECT_EQ(tokenizer->encode("a\u4e2d"), (Ids{7, 10 + 0xE4, 10 + 0xB8, 10 + 0xAD}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a\u4e2d c")), "a\u4e2d c");
  // A byte's name in the text is no byte.
  EXPECT_EQ(tokenizer->encode("<0x41>").front(), 3);
  EXPECT_GT(tokenizer->encode("<0x41>").size(), 2U);
}

TEST(SentencePiece, PutsBosAndEosAroundTexts) {
  const auto tokenizer = load(model(), {.bos = "<s>", .eos = "</s>"});
  EXPECT_EQ(tokenizer->encode("a"), (Ids{1, 7, 2}));
  EXPECT_EQ(tokenizer->encode("a", {.add_special_tokens = false}), Ids{7});
  EXPECT_TRUE(tokenizer->is_special(1));
  EXPECT_EQ(tokenizer->decode(Ids{1, 7, 2}, {.skip_special_tokens = true}), "a");
  EXPECT_NE(error_of<DataError>(model(), {.bos = "<none>"}).find("<none>"), std::string::npos);
}

TEST(SentencePiece, ControlPiecesAreFoundInTextsUserDefinedOnesStayWhole) {
  const auto tokenizer = load(model({.more_pieces = piece("cab", 0, kUserDefined)}));
  EXPECT_EQ(tokenizer->encode("a<s>"), (Ids{7, 1}));
  EXPECT_EQ(tokenizer->encode("acabab"), (Ids{7, 10, 6}));
  EXPECT_FALSE(tokenizer->is_special(10));
}

TEST(SentencePiece, NormalisesAsTheModelSays) {
  const auto no_prefix = load(model({.normalizer = number(3, 0) + number(4, 0) + number(5, 1)}));
  EXPECT_EQ(no_prefix->encode("ab a"), (Ids{6, 7}));
  EXPECT_EQ(no_prefix->decode(Ids{7}), " a");
  const auto strips = load(model({.normalizer = number(3, 1) + number(4, 1) + number(5, 1)}));
  EXPECT_EQ(strips->encode("  a   b  "), (Ids{7, 3, 5}));
  EXPECT_EQ(strips->encode("   "), Ids{});
  EXPECT_EQ(strips->encode("a\u2581\u2581"), Ids{7});
  EXPECT_EQ(load(model())->encode(" a"), (Ids{3, 7}));
}

TEST(SentencePiece, PrefixesEveryPartOrTheFirstOnly) {
  const std::string content = model();
  EXPECT_EQ(load(content)->encode("a<s>a"), (Ids{7, 1, 7}));
  const auto first = load(content, {.prefix_every_part = false});
  EXPECT_EQ(first->encode("a<s>a"), (Ids{7, 1, 4}));
  EXPECT_EQ(first->encode("<s>a"), (Ids{1, 4}));
}

TEST(SentencePiece, AddsTokensBehindItsPieces) {
  const auto tokenizer =
      load(model(), {.added_tokens = {{.content = "<x>"}, {.content = "c", .special = false}}});
  EXPECT_EQ(tokenizer->encode("a<x>"), (Ids{7, 10}));
  EXPECT_TRUE(tokenizer->is_special(10));
  EXPECT_EQ(tokenizer->encode("ac"), (Ids{7, 9}));
  EXPECT_FALSE(tokenizer->is_special(9));
}

TEST(SentencePiece, RefusesModelsItDoesNotHaveByName) {
  EXPECT_NE(error_of<NotSupported>(model({.model_type = 1})).find("unigram"), std::string::npos);
  EXPECT_NE(error_of<NotSupported>(model({.model_type = 3})).find("word"), std::string::npos);
  EXPECT_NE(error_of<NotSupported>(model({.model_type = 9})).find("9"), std::string::npos);
  EXPECT_NE(error_of<NotSupported>(model({.trainer = number(24, 1)})).find("whitespace_as_suffix"),
            std::string::npos);
  EXPECT_NE(error_of<NotSupported>(model() + bytes(5, bytes(2, "x"))).find("denormalizer"),
            std::string::npos);
}

TEST(SentencePiece, RefusesBrokenPieces) {
  const auto error_with = [](const std::string& more) {
    return error_of<DataError>(model({.more_pieces = more}));
  };
  EXPECT_NE(error_with(piece("a", 0)).find("piece 10 'a' stands there twice"), std::string::npos);
  EXPECT_NE(error_with(piece("", 0)).find("piece 10 is empty"), std::string::npos);
  EXPECT_NE(error_with(piece("x", 0, 7)).find("type 7"), std::string::npos);
  EXPECT_NE(error_with(piece("x", 1e38F * 10)).find("score"), std::string::npos);
  EXPECT_NE(error_with(piece(std::string(513, 'x'), 0)).find("513"), std::string::npos);
  EXPECT_NE(error_with(piece("\xff", 0)).find("UTF-8"), std::string::npos);
  EXPECT_NE(error_of<DataError>(bytes(2, number(3, 2))).find("no pieces"), std::string::npos);
  EXPECT_NE(error_of<DataError>("no protobuf").find("t.model"), std::string::npos);
}

TEST(SentencePiece, EveryCutOfAModelIsRefusedOrRead) {
  const std::string content = model();
  size_t refused = 0;
  for (size_t size = 0; size < content.size(); ++size) {
    try {
      load(content.substr(0, size))->encode("ab");
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, content.size() / 2);
}

}  // namespace
}  // namespace apus::data
