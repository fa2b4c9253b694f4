#include "data/token_labels.h"

#include "apus/data/rows_report.h"
#include "apus/data/sft_rows.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

using Ids = std::vector<int32_t>;
using Weights = std::vector<float>;

constexpr int32_t kNone = kIgnoredLabel;

TEST(LabelSpans, ATokenBelongsToTheSpanOfItsFirstByte) {
  // Tokens at 0, 2, 4, 6, 8; a span from 3 to 7 has those that begin at 4 and 6.
  const SftRow row = label_spans({{1, 2, 3, 4, 5}, {0, 2, 4, 6, 8}}, {{3, 7, 1.0f}}, 0.0f);
  EXPECT_EQ(row.input_ids, (Ids{1, 2, 3, 4, 5}));
  EXPECT_EQ(row.labels, (Ids{kNone, kNone, 3, 4, kNone}));
  EXPECT_TRUE(row.weights.empty());
}

TEST(LabelSpans, SeveralSpansWithWeightsOfTheirOwn) {
  const SftRow row = label_spans({{1, 2, 3, 4, 5, 6}, {0, 1, 2, 2, 3, 4}},
                                 {{0, 1, 0.5f}, {1, 1, 9.0f}, {2, 3, 0.0f}, {3, 9, 2.0f}}, 0.0f);
  EXPECT_EQ(row.labels, (Ids{1, kNone, kNone, kNone, 5, 6}));
  EXPECT_EQ(row.weights, (Weights{0.5f, 0, 0, 0, 2, 2}));
}

TEST(LabelSpans, TokensElsewhereMayCount) {
  const SftRow row = label_spans({{1, 2, 3}, {0, 1, 2}}, {{1, 2, 0.0f}}, 1.0f);
  EXPECT_EQ(row.labels, (Ids{1, kNone, 3}));
  EXPECT_TRUE(row.weights.empty());
}

TEST(LabelAll, GivesEveryTokenOneWeight) {
  EXPECT_EQ(label_all({7, 8}, 1.0f).labels, (Ids{7, 8}));
  EXPECT_TRUE(label_all({7, 8}, 1.0f).weights.empty());
  EXPECT_EQ(label_all({7, 8}, 0.25f).weights, (Weights{0.25f, 0.25f}));
  EXPECT_EQ(label_all({7, 8}, 0.0f).labels, (Ids{kNone, kNone}));
}

TEST(ByteCounter, CountsBytesOfCodePoints) {
  ByteCounter bytes("aé𝒳b");
  EXPECT_EQ(bytes.before(0), 0u);
  EXPECT_EQ(bytes.before(1), 1u);
  EXPECT_EQ(bytes.before(2), 3u);
  EXPECT_EQ(bytes.before(3), 7u);
  EXPECT_EQ(bytes.before(4), 8u);
  EXPECT_EQ(bytes.before(99), 8u);
}

SftRow sample() {
  return {.input_ids = {1, 2, 3, 4, 5}, .labels = {kNone, 2, kNone, 4, 5}, .weights = {0, 0.5f, 0, 1, 1}};
}

std::string code_of(SftRow row, std::optional<int64_t> limit, Truncation truncation) {
  try {
    fit_sft_row(row, limit, truncation);
  } catch (const RowRefused& refused) {
    return refused.problem().code;
  }
  return "none";
}

TEST(FitSftRow, LeavesARowThatFits) {
  SftRow row = sample();
  EXPECT_EQ(fit_sft_row(row, 5, Truncation::kDelete), RowFit::kWhole);
  EXPECT_EQ(fit_sft_row(row, {}, Truncation::kLeft), RowFit::kWhole);
  EXPECT_EQ(row.input_ids, sample().input_ids);
}

TEST(FitSftRow, CutsOneEndOfAllLists) {
  SftRow right = sample(), left = sample();
  EXPECT_EQ(fit_sft_row(right, 2, Truncation::kRight), RowFit::kTruncated);
  EXPECT_EQ(right.labels, (Ids{kNone, 2}));
  EXPECT_EQ(right.weights, (Weights{0, 0.5f}));
  EXPECT_EQ(fit_sft_row(left, 3, Truncation::kLeft), RowFit::kTruncated);
  EXPECT_EQ(left.input_ids, (Ids{3, 4, 5}));
  EXPECT_EQ(left.labels, (Ids{kNone, 4, 5}));
  EXPECT_TRUE(left.weights.empty()) << "what is left weighs 1";
}

TEST(FitSftRow, DropsWhatIsTooLongOrTrainsNothing) {
  EXPECT_EQ(code_of(sample(), 4, Truncation::kDelete), "too_long");
  EXPECT_EQ(code_of(sample(), 1, Truncation::kRight), "no_trained_token");
  EXPECT_EQ(code_of({.input_ids = {1}, .labels = {1}}, {}, Truncation::kDelete), "no_trained_token")
      << "nothing predicts the first token";
  EXPECT_EQ(code_of({}, {}, Truncation::kDelete), "no_trained_token");
  SftRow kept{.input_ids = {1, 2, 3}, .labels = {kNone, 2, 3}};
  EXPECT_EQ(fit_sft_row(kept, 2, Truncation::kLeft), RowFit::kTruncated);
  EXPECT_EQ(kept.labels, (Ids{2, 3}))
      << "a label at the first position is kept, though it counts for nothing";
}

}  // namespace
}  // namespace apus::data
