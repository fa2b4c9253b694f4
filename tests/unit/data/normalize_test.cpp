#include "data/normalize.h"

#include <utf8proc.h>

#include <cstdlib>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "apus/base/unicode.h"

namespace apus::data {
namespace {

std::string nfc(const std::string& text) {
  AlignedText aligned{text, false, {}};
  NfcNormalizer().apply(aligned);
  return aligned.text;
}

std::string reference_nfc(const std::string& text) {
  utf8proc_uint8_t* out = nullptr;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                   static_cast<utf8proc_ssize_t>(text.size()), &out, options);
  std::string result(reinterpret_cast<const char*>(out), static_cast<size_t>(length));
  std::free(out);
  return result;
}

TEST(NfcNormalizer, ComposesReordersAndReplaces) {
  EXPECT_EQ(nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(nfc("\u212b"), "\u00c5");
  EXPECT_EQ(nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(nfc("\u1112\u1161\u11ab"), "\ud55c");
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093c");
  EXPECT_EQ(nfc("a\u0315\u0300\u05ae\u0300b"), "\u00e0\u05ae\u0300\u0315b");
}

TEST(NfcNormalizer, KeepsWhatIsNormalAlready) {
  const NfcNormalizer normalizer;
  for (const std::string text : {"", "plain ascii text, longer than a word", "caf\u00e9 \u4e2d\u6587 \ud55c",
                                 "\u0e01\u0e49\u0e33", "\u0928\u092e\u0938\u094d\u0924\u0947"}) {
    EXPECT_TRUE(normalizer.keeps(text)) << text;
    EXPECT_EQ(nfc(text), text);
  }
  EXPECT_FALSE(normalizer.keeps("plain ascii text then e\u0301"));
  EXPECT_FALSE(normalizer.keeps("q\u0307\u0323"));
}

TEST(NfcNormalizer, TakesMarksNewerThanItsTablesAsStarters) {
  // U+1AC0 (220) would be put before U+0300 (230) by tables that know it.
  EXPECT_EQ(nfc("q\u0300\u1ac0"), "q\u0300\u1ac0");
  // U+11935 U+11930 compose since Unicode 13.
  EXPECT_EQ(nfc("\U00011935\U00011930"), "\U00011935\U00011930");
}

TEST(NfcNormalizer, EqualsUtf8procOnRandomText) {
  const std::u32string alphabet =
      U"ae\u0041\u0301\u0300\u0323\u0327\u030a\u00e9\u1e69\u0344\u0f71\u0f72\u0f73\u1112\u1161\u11ab\ud55c"
      U"\uac00\u0915"
      U"\u093c\u0958\u05b4\u05bc\ufb2c\u212b\u2126\uf900\u3099\u304b\U0001D15E\u4e2d";
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    std::u32string points;
    const size_t length = random() % 9;
    for (size_t i = 0; i < length; ++i) points += alphabet[random() % alphabet.size()];
    const std::string text = to_utf8(points);
    ASSERT_EQ(nfc(text), reference_nfc(text)) << "round " << round;
  }
}

TEST(NfcNormalizer, KeepsTrackOfWhereBytesCameFrom) {
  // x, e + acute (3 bytes), y: the composed letter stands for the e alone, what was dropped for nobody.
  AlignedText text = AlignedText::track("xe\u0301y", 10);
  ASSERT_EQ(text.origin.size(), 5U);
  NfcNormalizer().apply(text);
  EXPECT_EQ(text.text, "x\u00e9y");
  const std::vector<ByteRange> expected = {{10, 11}, {11, 12}, {11, 12}, {14, 15}};
  EXPECT_EQ(text.origin, expected);
}

TEST(NfcNormalizer, InsertedCharactersStandForTheOneBefore) {
  AlignedText text = AlignedText::track("\u0958", 0);
  NfcNormalizer().apply(text);
  EXPECT_EQ(text.text, "\u0915\u093c");
  EXPECT_EQ(text.origin, std::vector<ByteRange>(6, ByteRange{0, 3}));
}

TEST(SequenceNormalizer, RunsItsStepsInOrder) {
  std::vector<std::unique_ptr<Normalizer>> steps;
  steps.push_back(std::make_unique<NfcNormalizer>());
  steps.push_back(std::make_unique<NfcNormalizer>());
  const SequenceNormalizer sequence(std::move(steps));
  AlignedText text{"e\u0301", false, {}};
  EXPECT_FALSE(sequence.keeps(text.text));
  sequence.apply(text);
  EXPECT_EQ(text.text, "\u00e9");
  EXPECT_TRUE(sequence.keeps(text.text));
}

}  // namespace
}  // namespace apus::data
