#include "data/charsmap.h"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::data {
namespace {

std::string word(uint32_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

// A double array with the children of every node in a block of 256 units of their own.
class Blob {
 public:
  explicit Blob(const std::map<std::string, std::string>& entries) : units_(256, 0) {
    units_[0] = add_block() << 10;
    for (const auto& [key, content] : entries) add(key, content);
  }

  std::string bytes() const {
    std::string out = word(static_cast<uint32_t>(units_.size() * 4));
    for (const uint32_t unit : units_) out += word(unit);
    return out + strings_;
  }

 private:
  uint32_t add_block() {
    const auto base = static_cast<uint32_t>(units_.size());
    units_.resize(units_.size() + 256, 0);
    return base;
  }

  void add(const std::string& key, const std::string& content) {
    uint32_t base = 256;
    uint32_t at = 0;
    for (const char character : key) {
      const auto byte = static_cast<unsigned char>(character);
      at = base ^ byte;
      if (units_[at] == 0) {
        const uint32_t children = add_block();
        units_[at] = (at ^ children) << 10 | byte;
      }
      base = at ^ units_[at] >> 10;
    }
    units_[at] |= 1U << 8;
    units_[base] = 0x80000000U | static_cast<uint32_t>(strings_.size());
    strings_ += content + '\0';
  }

  std::vector<uint32_t> units_;
  std::string strings_;
};

std::string normal(const CharsmapNormalizer& step, const std::string& text) {
  AlignedText aligned = AlignedText::track(text, 0);
  step.apply(aligned);
  EXPECT_EQ(aligned.origin.size(), aligned.text.size());
  EXPECT_EQ(step.keeps(text), aligned.text == text);
  return aligned.text;
}

CharsmapNormalizer small_map(const std::vector<std::string>& kept = {}) {
  return CharsmapNormalizer(
      Blob({{"\uff21", "A"}, {"A\u030a", "\u00c5"}, {"\u00bd", "1/2"}, {"\u00ad", ""}}).bytes(), "m", kept);
}

TEST(CharsmapNormalizer, ReplacesCharactersAndClusters) {
  const CharsmapNormalizer step = small_map();
  EXPECT_EQ(normal(step, "x\uff21y"), "xAy");
  EXPECT_EQ(normal(step, "A\u030aA"), "\u00c5A");
  EXPECT_EQ(normal(step, "\u00bd"), "1/2");
  EXPECT_EQ(normal(step, "a\u00adb"), "ab");
  EXPECT_EQ(normal(step, "plain \u4e2d"), "plain \u4e2d");
  EXPECT_EQ(normal(step, ""), "");
}

TEST(CharsmapNormalizer, TakesASmallClusterForItsEntryAsTheLibraryDoes) {
  // The mark behind goes with the cluster; one of six bytes is taken character by character.
  EXPECT_EQ(normal(small_map(), "\uff21\u0301"), "A");
  EXPECT_EQ(normal(small_map(), "\uff21\u0301\u0301"), "A\u0301\u0301");
}

TEST(CharsmapNormalizer, WhatItPutsInStandsForTheCharactersOneByOne) {
  AlignedText text = AlignedText::track("A\u030a\u00bd", 0);
  small_map().apply(text);
  ASSERT_EQ(text.text, "\u00c51/2");
  EXPECT_EQ(text.origin[0], (ByteRange{0, 1}));
  EXPECT_EQ(text.origin[2], (ByteRange{3, 5}));
  EXPECT_EQ(text.origin[4], (ByteRange{3, 5}));
}

TEST(CharsmapNormalizer, PassesOverUserDefinedPieces) {
  const CharsmapNormalizer step = small_map({"\uff21", "<\u00bd>"});
  EXPECT_EQ(normal(step, "\uff21\u00bd<\u00bd>\uff21"), "\uff211/2<\u00bd>\uff21");
}

TEST(CharsmapNormalizer, RefusesBrokenBlobs) {
  const std::string good = Blob(std::map<std::string, std::string>{{"a", "b"}}).bytes();
  const auto error_of = [](const std::string& blob) -> std::string {
    try {
      const CharsmapNormalizer step(blob, "m.model");
      return "none";
    } catch (const DataError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(error_of(good), "none");
  EXPECT_NE(error_of("").find("m.model"), std::string::npos);
  EXPECT_NE(error_of("abc").find("3 bytes"), std::string::npos);
  EXPECT_NE(error_of(word(0)).find("trie"), std::string::npos);
  EXPECT_NE(error_of(word(6) + "xxxxxx").find("trie"), std::string::npos);
  EXPECT_NE(error_of(word(400) + "xxxx").find("400"), std::string::npos);
  EXPECT_NE(error_of(good + "\xff").find("UTF-8"), std::string::npos);
}

TEST(CharsmapNormalizer, LinksThatLeadOutOfTheTrieFindNothing) {
  const CharsmapNormalizer step(word(4) + word(0xFFFFFC00U), "m");
  EXPECT_EQ(normal(step, "abc"), "abc");
}

TEST(DecodeBase64, ReadsAllLengthsAndRefusesOtherTexts) {
  EXPECT_EQ(decode_base64("", "f", "w"), "");
  EXPECT_EQ(decode_base64("YQ==", "f", "w"), "a");
  EXPECT_EQ(decode_base64("YWI=", "f", "w"), "ab");
  EXPECT_EQ(decode_base64("YWJj", "f", "w"), "abc");
  EXPECT_EQ(decode_base64("+/8=", "f", "w"), "\xfb\xff");
  for (const char* text : {"YQ", "Y===", "YW!j", "YQ==YQ==", "===="})
    EXPECT_THROW(decode_base64(text, "f", "w"), DataError) << text;
}

}  // namespace
}  // namespace apus::data
