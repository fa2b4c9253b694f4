#include <gtest/gtest.h>

#include "apus/data/survey.h"
#include "apus/data/tokenizer.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

/// Tokens 0 to 25 are the letters.
std::shared_ptr<const Tokenizer> letters() {
  std::string vocab;
  for (int i = 0; i < 26; ++i)
    vocab += std::string(i > 0 ? "," : "") + "\"" + static_cast<char>('a' + i) + "\":" + std::to_string(i);
  return Tokenizer::from_json(
      R"({"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":false},)"
      R"("decoder":{"type":"ByteLevel"},"model":{"type":"BPE","merges":[],"vocab":{)" +
          vocab + "}}}",
      "letters");
}

std::string shown(const std::vector<SampleRun>& runs) {
  std::string text;
  for (const SampleRun& run : runs) {
    EXPECT_EQ(run.tokens, static_cast<int64_t>(run.text.size()));
    text += "|" + run.text + (run.weight == 0 ? "" : run.weight == 1 ? "+" : "*");
  }
  return text;
}

TEST(SurveySamples, PairsShowTheirAnswersBehindThePrompt) {
  DpoRow row{.prompt_ids = {0, 1, 2}, .chosen_ids = {3, 4}, .rejected_ids = {5}, .place = {0, 7}};
  row.rejected_prompt_begin = 2;
  const DpoDataset dataset({row, row}, {.files = {"a.jsonl"}});
  const auto samples = sample_rows(dataset, *letters(), 1);
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].place, "a.jsonl:7");
  EXPECT_EQ(samples[0].sequences[0].first, "chosen");
  EXPECT_EQ(shown(samples[0].sequences[0].second), "|abc|de+");
  EXPECT_EQ(samples[0].sequences[1].first, "rejected");
  EXPECT_EQ(shown(samples[0].sequences[1].second), "|c|f+");
  EXPECT_EQ(sample_rows(dataset, *letters(), 9).size(), 2u);
}

TEST(SurveySamples, TextsAreCutWhereTheWeightChanges) {
  const SftDataset dataset({{.input_ids = {0, 1, 2, 3, 4},
                             .labels = {kIgnoredLabel, 1, 2, 3, kIgnoredLabel},
                             .weights = {0, 1, 1, 0.5, 0}}});
  EXPECT_EQ(shown(sample_rows(dataset, *letters(), 1)[0].sequences[0].second), "|a|bc+|d*|e");
}

TEST(SurveySamples, AFirstTokenIsNeverTrained) {
  const SftDataset dataset({{.input_ids = {0, 1}, .labels = {0, 1}}});
  EXPECT_EQ(shown(sample_rows(dataset, *letters(), 1)[0].sequences[0].second), "|a|b+");
}

}  // namespace
}  // namespace apus::data
