#include "data/post_process.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::data {
namespace {

using Ids = std::vector<int32_t>;

PostPlan plan_of(const std::string& processor, PostTokens tokens = PostTokens::kSpecial) {
  return build_post_plan(parse_tokenizer_json(R"({"post_processor":)" + processor + "}", "t.json"), tokens);
}

Ids ids_of(const std::string& processor, PostTokens tokens = PostTokens::kSpecial) {
  Ids ids = {7, 8};
  plan_of(processor, tokens).apply(ids);
  return ids;
}

const std::string kTemplate =
    R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}},)"
    R"({"SpecialToken":{"id":"</s>"}}],"pair":[{"Sequence":{"id":"B"}},{"Sequence":{"id":"A"}}],)"
    R"("special_tokens":{"<s>":{"ids":[1]},"</s>":{"ids":[2,3]}}})";

std::string sequence(const std::string& first, const std::string& second) {
  return R"({"type":"Sequence","processors":[)" + first + "," + second + "]}";
}

TEST(PostPlan, NoPostProcessorLeavesTheTextAlone) {
  EXPECT_EQ(ids_of("null"), (Ids{7, 8}));
}

TEST(PostPlan, TemplatesPutTokensOnBothSides) {
  EXPECT_EQ(ids_of(kTemplate), (Ids{1, 7, 8, 2, 3}));
  EXPECT_EQ(ids_of(kTemplate, PostTokens::kNone), (Ids{7, 8}));
}

TEST(PostPlan, ATemplateMayRepeatTheTextOrLeaveItOut) {
  EXPECT_EQ(
      ids_of(R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"A"}},{"Sequence":{"id":"A"}}],)"
             R"("special_tokens":{}})"),
      (Ids{7, 8, 7, 8}));
  EXPECT_EQ(ids_of(R"({"type":"TemplateProcessing","single":[],"special_tokens":{}})"), Ids{});
}

TEST(PostPlan, BertAndRobertaSurroundTheText) {
  EXPECT_EQ(ids_of(R"({"type":"BertProcessing","sep":["s",5],"cls":["c",4]})"), (Ids{4, 7, 8, 5}));
  EXPECT_EQ(ids_of(R"({"type":"RobertaProcessing","sep":["s",5],"cls":["c",4],"trim_offsets":true,)"
                   R"("add_prefix_space":true})"),
            (Ids{4, 7, 8, 5}));
  EXPECT_EQ(ids_of(R"({"type":"BertProcessing","sep":["s",5],"cls":["c",4]})", PostTokens::kNone),
            (Ids{7, 8}));
}

TEST(PostPlan, ASecondTemplateSeesTwoSequencesAndFailsWithMore) {
  const std::string bos =
      R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],)"
      R"("special_tokens":{"<s>":{"ids":[1]}}})";
  EXPECT_EQ(ids_of(sequence(bos, kTemplate)), (Ids{7, 8, 1}));
  EXPECT_THROW(ids_of(sequence(kTemplate, kTemplate)), NotSupported);
}

TEST(PostPlan, TrimsWhiteSpaceButASpaceThatWasPutInFront) {
  TrackedToken first{.id = 7, .begin = 0, .end = 2};
  count_spaces("\u0120a", first);
  TrackedToken second{.id = 8, .begin = 2, .end = 6};
  count_spaces("\u0120\u0120b\u0120", second);
  const std::vector<TrackedToken> tokens = {first, second};
  const PostPlan keep = plan_of(R"({"type":"ByteLevel","trim_offsets":true,"add_prefix_space":true})");
  EXPECT_EQ(keep.apply(" a  b ", tokens).offsets, (std::vector<TokenOffsets>{{0, 2}, {4, 5}}));
  const PostPlan cut = plan_of(R"({"type":"ByteLevel","trim_offsets":true,"add_prefix_space":false})");
  EXPECT_EQ(cut.apply(" a  b ", tokens).offsets, (std::vector<TokenOffsets>{{1, 2}, {4, 5}}));
  const PostPlan none = plan_of(R"({"type":"ByteLevel","trim_offsets":false})");
  EXPECT_EQ(none.apply(" a  b ", tokens).offsets, (std::vector<TokenOffsets>{{0, 2}, {2, 6}}));
}

TEST(PostPlan, CountsCodePoints) {
  const std::vector<TrackedToken> tokens = {{.id = 7, .begin = 0, .end = 3}, {.id = 8, .begin = 3, .end = 4}};
  EXPECT_EQ(plan_of("null").apply("\u4e2da", tokens).offsets, (std::vector<TokenOffsets>{{0, 1}, {1, 2}}));
}

TEST(PostPlan, RefusesWhatIsBroken) {
  EXPECT_THROW(plan_of(R"({"type":"Mirror"})"), NotSupported);
  EXPECT_THROW(plan_of(R"({"type":"BertProcessing","sep":["s",-5],"cls":["c",4]})"), DataError);
  EXPECT_THROW(plan_of(R"({"type":"BertProcessing","sep":"s","cls":["c",4]})"), DataError);
  EXPECT_THROW(
      plan_of(R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"B"}}],"special_tokens":{}})"),
      DataError);
  EXPECT_THROW(plan_of(R"({"type":"TemplateProcessing","single":7,"special_tokens":{}})"), DataError);
}

}  // namespace
}  // namespace apus::data
