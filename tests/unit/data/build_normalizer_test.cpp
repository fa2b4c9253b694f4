#include <string>

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "data/tokenizer_parts.h"

namespace apus::data {
namespace {

TokenizerJson file_of(const std::string& normalizer) {
  return parse_tokenizer_json(R"({"normalizer":)" + normalizer + "}", "t.json");
}

std::string normal(const std::string& normalizer, const std::string& text) {
  const auto built = build_normalizer(file_of(normalizer));
  AlignedText aligned = AlignedText::track(text, 0);
  built->apply(aligned);
  EXPECT_EQ(aligned.origin.size(), aligned.text.size());
  if (built->keeps(text)) {
    EXPECT_EQ(aligned.text, text);
  }
  return aligned.text;
}

TEST(BuildNormalizer, NoneGivesNone) {
  EXPECT_EQ(build_normalizer(parse_tokenizer_json("{}", "t.json")), nullptr);
  EXPECT_EQ(build_normalizer(file_of("null")), nullptr);
  EXPECT_EQ(build_normalizer(file_of(R"({"type":"Sequence","normalizers":[]})")), nullptr);
}

TEST(BuildNormalizer, SequencesMayHoldSequences) {
  EXPECT_EQ(normal(R"({"type":"Sequence","normalizers":[{"type":"Sequence","normalizers":[{"type":"NFC"}]},)"
                   R"({"type":"Lowercase"}]})",
                   "E\u0301"),
            "\u00e9");
}

TEST(BuildNormalizer, KnowsEveryTypeByItsName) {
  EXPECT_EQ(normal(R"({"type":"NFD"})", "\u00e9"), "e\u0301");
  EXPECT_EQ(normal(R"({"type":"NFKC"})", "\uFB01"), "fi");
  EXPECT_EQ(normal(R"({"type":"NFKD"})", "\u1E9B\u0323"), "s\u0323\u0307");
  EXPECT_EQ(normal(R"({"type":"StripAccents"})", "e\u0301"), "e");
  EXPECT_EQ(normal(R"({"type":"Nmt"})", "a\tb\x7f"), "a b");
  EXPECT_EQ(normal(R"({"type":"ByteLevel"})", " a"), "\u0120a");
  EXPECT_EQ(normal(R"({"type":"Prepend","prepend":"_"})", "a"), "_a");
  EXPECT_EQ(normal(R"({"type":"Strip","strip_left":true,"strip_right":false})", " a "), "a ");
  EXPECT_EQ(normal(R"({"type":"Replace","pattern":{"String":"a"},"content":"bb"})", "cac"), "cbbc");
  EXPECT_EQ(normal(R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "})", "a   b c"), "a b c");
  EXPECT_EQ(normal(R"({"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,)"
                   R"("strip_accents":null,"lowercase":true})",
                   "\u00c9\t\u4e2d"),
            "e  \u4e2d ");
}

TEST(BuildNormalizer, RefusesWhatItDoesNotKnowAndWhatIsBroken) {
  EXPECT_THROW(build_normalizer(file_of(R"({"type":"Upper"})")), NotSupported);
  EXPECT_THROW(build_normalizer(file_of(R"({"type":"Sequence"})")), DataError);
  EXPECT_THROW(build_normalizer(file_of("{}")), DataError);
  EXPECT_THROW(build_normalizer(file_of(R"({"type":"Prepend"})")), DataError);
  EXPECT_THROW(build_normalizer(file_of(R"({"type":"Precompiled","precompiled_charsmap":"!"})")), DataError);
  EXPECT_THROW(build_normalizer(file_of(R"({"type":"Replace","pattern":{},"content":""})")), DataError);
}

}  // namespace
}  // namespace apus::data
