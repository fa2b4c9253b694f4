#include "data/decode_steps.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::data {
namespace {

using Names = std::vector<std::string>;

std::vector<DecodeStep> steps_of(const std::string& decoder) {
  return build_decoder(parse_tokenizer_json(R"({"decoder":)" + decoder + "}", "t.json"));
}

std::string decode(const std::string& decoder, const Names& names) {
  const auto steps = steps_of(decoder);
  DecodePipeline pipeline(steps);
  for (const std::string& name : names) pipeline.push(name);
  pipeline.finish();
  return pipeline.take();
}

// What comes out after each token, and at the end.
Names stream(const std::string& decoder, const Names& names) {
  const auto steps = steps_of(decoder);
  DecodePipeline pipeline(steps);
  Names out;
  for (const std::string& name : names) {
    pipeline.push(name);
    out.push_back(pipeline.take());
  }
  pipeline.finish();
  out.push_back(pipeline.take());
  return out;
}

const std::string kLlama =
    R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},)"
    R"({"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]})";

TEST(DecodeSteps, WithoutADecoderTokensAreJoinedWithSpaces) {
  EXPECT_EQ(decode("null", {"a", "", "b"}), "a  b");
  EXPECT_EQ(decode(R"({"type":"Sequence","decoders":[]})", {"a", "b"}), "ab");
}

TEST(DecodeSteps, ByteLevelJoinsBytesAndHoldsBackWhatBeginsACharacter) {
  EXPECT_EQ(decode(R"({"type":"ByteLevel"})", {"Ã", "©", "Ã"}), "\u00e9\uFFFD");
  EXPECT_EQ(stream(R"({"type":"ByteLevel"})", {"a", "Ã", "©", "â", "b"}),
            (Names{"a", "", "\u00e9", "", "\uFFFDb", ""}));
}

TEST(DecodeSteps, ARunOfByteTokensIsTextOnlyAsAWhole) {
  EXPECT_EQ(decode(R"({"type":"ByteFallback"})", {"<0xC3>", "<0xA9>", "x", "<0x41>", "<0xFF>"}),
            "\u00e9x\uFFFD\uFFFD");
  EXPECT_EQ(decode(R"({"type":"ByteFallback"})", {"<0xzz>", "<0x+F>", "<0x1>"}), "<0xzz>\x0F<0x1>");
  EXPECT_EQ(stream(kLlama, {"▁a", "<0xC3>", "<0xA9>", "b"}), (Names{"a", "", "", "\u00e9b", ""}));
}

TEST(DecodeSteps, StripCutsBothEndsOfEachToken) {
  EXPECT_EQ(decode(kLlama, {"▁▁a", "▁b"}), " a b");
  EXPECT_EQ(decode(R"({"type":"Strip","content":"x","start":1,"stop":2})", {"xxaxxx", "xx", "ax"}), "xaxa");
}

TEST(DecodeSteps, ReplaceFindsWhatChunksCutThrough) {
  const std::string fused =
      R"({"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Replace","pattern":{"String":"abc"},"content":"-"}]})";
  EXPECT_EQ(stream(fused, {"xab", "cab", "ab"}), (Names{"x", "-", "ab", "ab"}));
  EXPECT_EQ(decode(R"({"type":"Replace","pattern":{"String":""},"content":"-"})", {"ab"}), "-a-b-");
  EXPECT_EQ(decode(R"({"type":"Replace","pattern":{"Regex":"[ab]+"},"content":"-"})", {"xabx", "b"}), "x-x-");
}

TEST(DecodeSteps, MetaspaceDropsTheFirstTokensSpaces) {
  const std::string always = R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always"})";
  const std::string never = R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"never"})";
  EXPECT_EQ(decode(always, {"▁a", "▁b"}), "a b");
  EXPECT_EQ(decode(never, {"▁a", "▁b"}), " a b");
}

TEST(DecodeSteps, OtherFamiliesDecodersAreThereToo) {
  EXPECT_EQ(decode(R"({"type":"BPEDecoder","suffix":"</w>"})", {"a</w>", "b", "c</w>"}), "a bc");
  EXPECT_EQ(decode(R"({"type":"WordPiece","prefix":"##","cleanup":true})", {"do", "##g", "!", "ok"}),
            "dog! ok");
  EXPECT_EQ(decode(R"({"type":"CTC","pad_token":"_","word_delimiter_token":"|","cleanup":true})",
                   {"a", "a", "_", "a", "|"}),
            "aa ");
}

TEST(DecodeSteps, RefusesWhatItDoesNotKnowAndWhatIsBroken) {
  EXPECT_THROW(steps_of(R"({"type":"Scissors"})"), NotSupported);
  EXPECT_THROW(steps_of(R"({"type":"Strip","content":"ab","start":1,"stop":0})"), DataError);
  EXPECT_THROW(steps_of(R"({"type":"Strip","content":"a","start":-1,"stop":0})"), DataError);
  EXPECT_THROW(steps_of(R"({"type":"Metaspace","replacement":"_","prepend_scheme":"sometimes"})"), DataError);
  EXPECT_THROW(steps_of(R"({"type":"Metaspace","replacement":"_","add_prefix_space":false})"), DataError);
}

}  // namespace
}  // namespace apus::data
