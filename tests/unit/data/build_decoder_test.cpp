#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "data/decode_steps.h"

namespace apus::data {
namespace {

using Kind = DecodeStep::Kind;

std::vector<DecodeStep> build(const std::string& decoder) {
  return build_decoder(parse_tokenizer_json(R"({"decoder":)" + decoder + "}", "t.json"));
}

TEST(BuildDecoder, NoDecoderIsNoStepButAnEmptySequenceJoins) {
  EXPECT_TRUE(build("null").empty());
  EXPECT_TRUE(build_decoder(parse_tokenizer_json("{}", "t.json")).empty());
  const auto steps = build(R"({"type":"Sequence","decoders":[]})");
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0].kind, Kind::kFuse);
}

TEST(BuildDecoder, ReadsEveryTypesMembers) {
  const auto steps = build(R"({"type":"Sequence","decoders":[
    {"type":"Replace","pattern":{"String":"_"},"content":" "},
    {"type":"Replace","pattern":{"Regex":"_+"},"content":" "},
    {"type":"ByteFallback"},{"type":"Fuse"},{"type":"ByteLevel"},
    {"type":"Strip","content":" ","start":1,"stop":2},
    {"type":"Metaspace","replacement":"_","prepend_scheme":"never"},
    {"type":"BPEDecoder","suffix":"</w>"},
    {"type":"WordPiece","prefix":"##","cleanup":true},
    {"type":"CTC","pad_token":"<pad>","word_delimiter_token":"|","cleanup":false}]})");
  const std::vector<Kind> kinds = {
      Kind::kReplaceText, Kind::kReplacePattern, Kind::kByteFallback, Kind::kFuse,      Kind::kByteLevel,
      Kind::kStrip,       Kind::kMetaspace,      Kind::kBpe,          Kind::kWordPiece, Kind::kCtc};
  ASSERT_EQ(steps.size(), kinds.size());
  for (size_t i = 0; i < kinds.size(); ++i) EXPECT_EQ(steps[i].kind, kinds[i]) << i;
  EXPECT_EQ(steps[0].pattern, "_");
  EXPECT_EQ(steps[0].content, " ");
  EXPECT_TRUE(steps[1].finder != nullptr);
  EXPECT_EQ(steps[5].start, 1U);
  EXPECT_EQ(steps[5].stop, 2U);
  EXPECT_FALSE(steps[6].flag);
  EXPECT_EQ(steps[7].pattern, "</w>");
  EXPECT_TRUE(steps[8].flag);
  EXPECT_EQ(steps[9].pattern, "<pad>");
  EXPECT_EQ(steps[9].content, "|");
}

TEST(BuildDecoder, RefusesUnknownTypesAndMalformedOnes) {
  EXPECT_THROW(build(R"({"type":"Odd"})"), NotSupported);
  EXPECT_THROW(build(R"({"type":"Replace","pattern":{"Regex":"("},"content":""})"), NotSupported);
  for (const char* decoder :
       {"{}", R"({"type":"Strip","content":"ab","start":0,"stop":0})",
        R"({"type":"Strip","content":" ","start":-1,"stop":0})", R"({"type":"Strip","content":" "})",
        R"({"type":"Replace","content":""})", R"({"type":"BPEDecoder"})", R"({"type":"WordPiece"})",
        R"({"type":"CTC","pad_token":"a"})", R"({"type":"Sequence"})"})
    EXPECT_THROW(build(decoder), DataError) << decoder;
}

}  // namespace
}  // namespace apus::data
