#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apus/data/tokenizer.h"

namespace apus::data {
namespace {

using Json = nlohmann::json;
using Places = std::vector<std::vector<int64_t>>;

// Characters and their bytes, with what differs from file to file.
std::shared_ptr<const Tokenizer> load(const Json& parts) {
  Json vocabulary = Json::object();
  const auto add = [&](const std::string& name) { vocabulary[name] = vocabulary.size(); };
  for (const char* name : {"<unk>", "\u2581", "a", "b", "\u2581a", "ab", "\u00e9", "e"}) add(name);
  for (int byte = 0; byte < 256; ++byte) {
    constexpr const char* kDigits = "0123456789ABCDEF";
    add(std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + ">");
  }
  Json file = {{"model",
                {{"type", "BPE"},
                 {"unk_token", "<unk>"},
                 {"byte_fallback", true},
                 {"fuse_unk", true},
                 {"vocab", vocabulary},
                 {"merges", Json::array({Json::array({"\u2581", "a"}), Json::array({"a", "b"})})}}}};
  file.update(parts);
  return Tokenizer::from_json(file.dump(), "t.json");
}

Places places(const Tokenizer& tokenizer, const std::string& text) {
  const Encoding encoding = tokenizer.encode_with_offsets(text, {.add_special_tokens = false});
  EXPECT_EQ(encoding.ids, tokenizer.encode(text, {.add_special_tokens = false}));
  Places out;
  for (const TokenOffsets& offset : encoding.offsets) out.push_back({offset.begin, offset.end});
  return out;
}

Json added(const std::string& content, Json flags = Json::object()) {
  flags["content"] = content;
  return Json::array({flags});
}

TEST(TokenizerOffsets, CountCodePointsOfTheTextAsGiven) {
  const auto tokenizer = load(Json::object());
  EXPECT_EQ(places(*tokenizer, "ab"), (Places{{0, 2}}));
  EXPECT_EQ(places(*tokenizer, "\u00e9ab"), (Places{{0, 1}, {1, 3}}));
  EXPECT_EQ(places(*tokenizer, ""), Places{});
}

TEST(TokenizerOffsets, BytesOfACharacterAllStandForIt) {
  EXPECT_EQ(places(*load(Json::object()), "\u4e2da"), (Places{{0, 1}, {0, 1}, {0, 1}, {1, 2}}));
}

TEST(TokenizerOffsets, WhatANormalizerPutsInFrontStandsForTheFirstCharacter) {
  const auto tokenizer = load({{"normalizer", {{"type", "Prepend"}, {"prepend", "\u2581"}}}});
  EXPECT_EQ(places(*tokenizer, "a"), (Places{{0, 1}}));
  EXPECT_EQ(places(*tokenizer, "b"), (Places{{0, 1}, {0, 1}}));
}

TEST(TokenizerOffsets, LookBehindNormalizersThatShortenAndMove) {
  const auto strip = load({{"normalizer", {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}}}});
  EXPECT_EQ(places(*strip, "  ab "), (Places{{2, 4}}));
  const auto nfc = load({{"normalizer", {{"type", "NFC"}}}});
  EXPECT_EQ(nfc->encode("e\u0301"), nfc->encode("\u00e9"));
  EXPECT_EQ(places(*nfc, "be\u0301a").back(), (std::vector<int64_t>{3, 4}));
}

TEST(TokenizerOffsets, AddedTokensTakeTheSpaceTheyStrip) {
  const auto tokenizer =
      load({{"added_tokens", added("<x>", {{"lstrip", true}, {"rstrip", true}, {"normalized", false}})}});
  EXPECT_EQ(places(*tokenizer, "a <x>\nb"), (Places{{0, 1}, {1, 6}, {6, 7}}));
}

TEST(TokenizerOffsets, AddedTokensOfTheNormalisedTextStandForWhatTheyCameFrom) {
  const auto tokenizer =
      load({{"normalizer", {{"type", "Lowercase"}}}, {"added_tokens", added("XY", {{"normalized", true}})}});
  EXPECT_EQ(places(*tokenizer, "aXyb"), (Places{{0, 1}, {1, 3}, {3, 4}}));
}

TEST(TokenizerOffsets, PreTokenizersThatMarkTheStartKeepPlaces) {
  const auto tokenizer = load(
      {{"pre_tokenizer",
        {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}, {"split", true}}},
       {"added_tokens", added("<x>", {{"normalized", false}})}});
  EXPECT_EQ(places(*tokenizer, "a b"), (Places{{0, 1}, {1, 2}, {2, 3}}));
  EXPECT_EQ(places(*tokenizer, "<x>b"), (Places{{0, 3}, {3, 4}}));
}

}  // namespace
}  // namespace apus::data
