#include "apus/data/tokenizer.h"

#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "data/bpe_vocabulary.h"

namespace apus::data {
namespace {

using Ids = std::vector<int32_t>;
using Json = nlohmann::json;

// 256 bytes (their ids are the bytes), " a" = 256, and added tokens behind them.
Json tiny_file() {
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    std::string name;
    append_byte_level(name, std::string(1, static_cast<char>(byte)));
    vocab[name] = byte;
  }
  vocab["\u0120a"] = 256;
  return {{"added_tokens",
           {{{"id", 257}, {"content", "<s>"}, {"special", true}, {"normalized", false}},
            {{"id", 258}, {"content", "\u212b"}, {"special", false}, {"normalized", true}}}},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"\u0120 a"}}}}};
}

std::shared_ptr<const Tokenizer> load(const Json& file) {
  return Tokenizer::from_json(file.dump(), "tiny.json");
}

Json bos_template() {
  return {{"type", "TemplateProcessing"},
          {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
          {"special_tokens", {{"<s>", {{"ids", {257}}}}}}};
}

void expect_refusal(const Json& file, const std::string& part) {
  try {
    load(file);
    FAIL() << "accepted, expected a refusal with " << part;
  } catch (const NotSupported& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("tiny.json"), std::string::npos) << message;
  }
}

TEST(Tokenizer, EncodesAndDecodes) {
  const auto tokenizer = load(tiny_file());
  EXPECT_EQ(tokenizer->encode("b a"), (Ids{'b', 256}));
  EXPECT_EQ(tokenizer->encode(""), Ids{});
  EXPECT_EQ(tokenizer->decode(Ids{'b', 256}), "b a");
  EXPECT_EQ(tokenizer->encode("e\u0301"), (Ids{0xC3, 0xA9}));
}

TEST(Tokenizer, CutsAddedTokensFromRawAndFromNormalisedText) {
  const auto tokenizer = load(tiny_file());
  EXPECT_EQ(tokenizer->encode("<s> a<s>"), (Ids{257, 256, 257}));
  // U+212B, its composed form and its decomposed form are the same once normalised.
  EXPECT_EQ(tokenizer->encode("\u212b\u00c5A\u030a"), (Ids{258, 258, 258}));
}

TEST(Tokenizer, DecodesPartialCharactersAndLeavesOutWhatItDoesNotKnow) {
  const auto tokenizer = load(tiny_file());
  EXPECT_EQ(tokenizer->decode(Ids{0xE4, 0xB8, 'x'}), "\uFFFDx");
  EXPECT_EQ(tokenizer->decode_bytes(Ids{0xE4, 0xB8}), "\xE4\xB8");
  EXPECT_EQ(tokenizer->decode(Ids{-1, 'a', 900, 5000, INT32_MAX}), "a");
}

TEST(Tokenizer, SkipsSpecialTokensBeforeBytesAreJoined) {
  const auto tokenizer = load(tiny_file());
  const Ids ids = {0xC3, 257, 0xA9};
  EXPECT_EQ(tokenizer->decode(ids), "\uFFFD<s>\uFFFD");
  EXPECT_EQ(tokenizer->decode(ids, {.skip_special_tokens = true}), "\u00e9");
}

TEST(Tokenizer, AddsTheTemplatesTokensWhenAsked) {
  Json file = tiny_file();
  file["post_processor"] = {
      {"type", "Sequence"},
      {"processors", {{{"type", "ByteLevel"}, {"trim_offsets", false}}, bos_template()}}};
  const auto tokenizer = load(file);
  EXPECT_EQ(tokenizer->encode("b"), (Ids{257, 'b'}));
  EXPECT_EQ(tokenizer->encode("b", {.add_special_tokens = false}), Ids{'b'});
  const Encoding tracked = tokenizer->encode_with_offsets("b");
  EXPECT_EQ(tracked.ids, (Ids{257, 'b'}));
  EXPECT_EQ(tracked.offsets, (std::vector<TokenOffsets>{{0, 0}, {0, 1}}));
}

TEST(Tokenizer, ATemplateMayNotAddATokenBeyondTheVocabulary) {
  Json file = tiny_file();
  file["post_processor"] = bos_template();
  file["post_processor"]["special_tokens"]["<s>"]["ids"] = {258};
  EXPECT_EQ(load(file)->encode("b"), (Ids{258, 'b'}));
  file["post_processor"]["special_tokens"]["<s>"]["ids"] = {259};
  EXPECT_THROW(load(file), DataError) << "id_limit() is 259";
}

TEST(Tokenizer, OffsetsCountCodePointsOfTheTextAsGiven) {
  const Encoding tracked = load(tiny_file())->encode_with_offsets("\u4e2de\u0301 a<s>");
  EXPECT_EQ(tracked.ids, (Ids{0xE4, 0xB8, 0xAD, 0xC3, 0xA9, 256, 257}));
  const std::vector<TokenOffsets> expected = {{0, 1}, {0, 1}, {0, 1}, {1, 2}, {1, 2}, {3, 5}, {5, 8}};
  EXPECT_EQ(tracked.offsets, expected);
}

TEST(Tokenizer, TrimsOffsetsWhereTheFileSaysSo) {
  Json file = tiny_file();
  file["post_processor"] = {{"type", "ByteLevel"}, {"trim_offsets", true}, {"add_prefix_space", false}};
  const Encoding tracked = load(file)->encode_with_offsets("b a");
  EXPECT_EQ(tracked.offsets, (std::vector<TokenOffsets>{{0, 1}, {2, 3}}));
}

TEST(Tokenizer, PutsASpaceInFrontWhereTheFileSaysSo) {
  Json file = tiny_file();
  file["pre_tokenizer"]["add_prefix_space"] = true;
  const auto tokenizer = load(file);
  EXPECT_EQ(tokenizer->encode("a"), Ids{256});
  EXPECT_EQ(tokenizer->encode(" a"), Ids{256});
  EXPECT_EQ(tokenizer->encode_with_offsets("a").offsets, (std::vector<TokenOffsets>{{0, 1}}));
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8AndSaysWhere) {
  const auto tokenizer = load(tiny_file());
  try {
    tokenizer->encode("ab\xff");
    FAIL() << "accepted";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("byte 2"), std::string::npos) << error.what();
  }
}

TEST(Tokenizer, KnowsItsTokens) {
  const auto tokenizer = load(tiny_file());
  EXPECT_EQ(tokenizer->token_to_id("\u0120a"), 256);
  EXPECT_EQ(tokenizer->token_to_id("<s>"), 257);
  EXPECT_EQ(tokenizer->token_to_id("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer->id_to_token(256), "\u0120a");
  EXPECT_EQ(tokenizer->id_to_token(258), "\u212b");
  EXPECT_EQ(tokenizer->id_to_token(259), std::nullopt);
  EXPECT_TRUE(tokenizer->is_special(257));
  EXPECT_FALSE(tokenizer->is_special(258));
  EXPECT_FALSE(tokenizer->is_special(-5));
  EXPECT_EQ(tokenizer->vocab_size(), 259U);
  EXPECT_EQ(tokenizer->id_limit(), 259);
  EXPECT_EQ(tokenizer->source(), "tiny.json");
}

TEST(Tokenizer, NamesTheComponentItDoesNotHave) {
  Json file = tiny_file();
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Upper"}}}}};
  expect_refusal(file, "normalizer.normalizers[1].type 'Upper'");
  file = tiny_file();
  file["pre_tokenizer"] = {{"type", "UnicodeScripts"}};
  expect_refusal(file, "pre_tokenizer.type 'UnicodeScripts'");
  file = tiny_file();
  file["decoder"] = {{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}, {{"type", "Scissors"}}}}};
  expect_refusal(file, "decoder.decoders[1].type 'Scissors'");
  file = tiny_file();
  file["post_processor"] = {{"type", "Mirror"}};
  expect_refusal(file, "post_processor.type 'Mirror'");
  for (const char* type : {"WordPiece", "WordLevel", "Unigram"}) {
    file = tiny_file();
    file["model"]["type"] = type;
    expect_refusal(file, "model.type '" + std::string(type) + "'");
  }
  file = tiny_file();
  file["model"]["dropout"] = 0.1;
  expect_refusal(file, "model.dropout");
  file["model"]["dropout"] = 0.0;
  EXPECT_EQ(load(file)->encode(" a"), Ids{256});
}

// Letters a to c with bytes to fall back on, as SentencePiece's tokenizers are.
Json character_file() {
  Json vocab = {{"<unk>", 0},   {"\u2581", 1}, {"a", 2},     {"b", 3},
                {"\u2581a", 4}, {"<0xC3>", 5}, {"<0xA9>", 6}};
  Json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  Json prepend = {{"type", "Prepend"}, {"prepend", "\u2581"}};
  Json back = {{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}};
  Json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  return {
      {"added_tokens", {{{"id", 7}, {"content", "<s>"}, {"special", true}, {"normalized", false}}}},
      {"normalizer", {{"type", "Sequence"}, {"normalizers", {prepend, replace}}}},
      {"decoder",
       {{"type", "Sequence"}, {"decoders", {back, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}, strip}}}},
      {"model",
       {{"type", "BPE"},
        {"unk_token", "<unk>"},
        {"fuse_unk", true},
        {"byte_fallback", true},
        {"vocab", vocab},
        {"merges", Json::array({Json::array({"\u2581", "a"})})}}}};
}

TEST(Tokenizer, SpellsCharactersAndFallsBackToBytes) {
  const auto tokenizer = load(character_file());
  EXPECT_EQ(tokenizer->encode("a b\u00e9"), (Ids{4, 1, 3, 5, 6}));
  EXPECT_EQ(tokenizer->encode("a<s>a"), (Ids{4, 7, 4}));
  EXPECT_EQ(tokenizer->encode("axy"), (Ids{4, 0}));
  EXPECT_EQ(tokenizer->encode(""), Ids{});
  EXPECT_EQ(tokenizer->decode(Ids{4, 1, 3, 5, 6}), "a b\u00e9");
  EXPECT_EQ(tokenizer->decode(Ids{4, 5, 3}), "a\uFFFDb");
  EXPECT_EQ(tokenizer->decode_bytes(Ids{4, 5, 3}), "a\uFFFDb");
}

TEST(Tokenizer, PlacesOfCharactersAreThoseOfTheGivenText) {
  const Encoding tracked = load(character_file())->encode_with_offsets("a b\u00e9");
  EXPECT_EQ(tracked.ids, (Ids{4, 1, 3, 5, 6}));
  EXPECT_EQ(tracked.offsets, (std::vector<TokenOffsets>{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {3, 4}}));
}

TEST(Tokenizer, AFirstPrefixGoesOnlyToWhatStartsTheText) {
  Json file = character_file();
  file["normalizer"] = nullptr;
  file["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}, {"split", false}};
  EXPECT_EQ(load(file)->encode("a<s>a"), (Ids{4, 7, 2}));
  EXPECT_EQ(load(file)->encode("<s>a"), (Ids{7, 2}));
  EXPECT_EQ(load(file)->encode(" a"), Ids{4});
  file["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  EXPECT_EQ(load(file)->encode("a "), Ids{4});
  EXPECT_EQ(load(file)->encode(" a"), Ids{2}) << "what starts the text is gone";
}

TEST(Tokenizer, WithoutADecoderTokensAreJoinedWithSpaces) {
  Json file = character_file();
  file["decoder"] = nullptr;
  EXPECT_EQ(load(file)->decode(Ids{2, 3, 7}), "a b <s>");
  EXPECT_EQ(load(file)->decode(Ids{2, 3, 7}, {.skip_special_tokens = true}), "a b");
}

TEST(Tokenizer, ReplacesWhatIsNotUtf8OnlyWhenAsked) {
  const auto tokenizer = load(tiny_file());
  const EncodeOptions replace{.invalid_utf8 = InvalidUtf8::kReplace};
  EXPECT_EQ(tokenizer->encode("a\xff", replace), (Ids{'a', 0xEF, 0xBF, 0xBD}));
  EXPECT_EQ(tokenizer
                ->encode_with_offsets("a\xff"
                                      "b",
                                      replace)
                .offsets.back(),
            (TokenOffsets{2, 3}));
  EXPECT_THROW(tokenizer->encode("a\xff"), DataError);
}

TEST(Tokenizer, RefusesBrokenFiles) {
  Json file = tiny_file();
  file["added_tokens"][0]["id"] = -4;
  EXPECT_THROW(load(file), DataError);
  file = tiny_file();
  file.erase("model");
  EXPECT_THROW(load(file), DataError);
  file = tiny_file();
  file["post_processor"] = bos_template();
  file["post_processor"]["single"][0]["SpecialToken"]["id"] = "<t>";
  EXPECT_THROW(load(file), DataError);
  EXPECT_THROW(Tokenizer::from_file("/no/such/tokenizer.json"), FileError);
}

TEST(Tokenizer, SplitsAsTheFileSays) {
  Json file = tiny_file();
  file["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Digits"}, {"individual_digits", true}},
        {{"type", "Split"}, {"pattern", {{"Regex", "b|\\s"}}}, {"behavior", "Removed"}, {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  EXPECT_EQ(load(file)->encode(" a1bc"), (Ids{'a', '1', 'c'}));
  file["pre_tokenizer"]["pretokenizers"][1]["behavior"] = "Sideways";
  EXPECT_THROW(load(file), DataError);
}

TEST(Tokenizer, EncodesFromManyThreadsAtOnce) {
  const auto tokenizer = load(tiny_file());
  std::string text;
  for (int i = 0; i < 500; ++i) text += "word" + std::to_string(i * 7919) + " a caf\u00e9 <s>";
  const Ids expected = tokenizer->encode(text);
  std::vector<int> right(4, 0);
  std::vector<std::thread> threads;
  for (int& count : right)
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) count += tokenizer->encode(text) == expected ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(4, 20));
}

}  // namespace
}  // namespace apus::data
