#include "apus/data/survey.h"

#include <gtest/gtest.h>

#include <numeric>

#include "apus/base/error.h"
#include "apus/base/log.h"
#include "apus/data/prepare.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

SftRow text_of(int32_t length, int32_t trained, int64_t line = 0) {
  SftRow row{.place = {0, line}};
  for (int32_t i = 0; i < length; ++i) {
    row.input_ids.push_back(i + 1);
    row.labels.push_back(i < length - trained ? kIgnoredLabel : i + 1);
  }
  return row;
}

std::shared_ptr<const SftDataset> texts_of(const std::vector<int32_t>& lengths) {
  std::vector<SftRow> rows;
  for (const int32_t length : lengths)
    rows.push_back(text_of(length, 1, static_cast<int64_t>(rows.size()) + 1));
  return std::make_shared<SftDataset>(std::move(rows));
}

BatchSurveyOptions in_order(int64_t rows, int64_t micro, int64_t world, int64_t accumulation) {
  return {.plan = StepPlan(
              {.rows = rows, .micro_batch_rows = micro, .world = world, .accumulation = accumulation}),
          .sampler = Sampler({.rows = rows, .shuffle = false})};
}

TEST(Survey, MeasuresPairsByBothAnswers) {
  DpoRow cut = make_pair(4, 2, 3);
  cut.chosen_prompt_begin = 1;
  const DpoDataset dataset({make_pair(2, 3, 1), cut, make_pair(0, 2, 1)});
  const std::vector<RowLengths> expected = {{5, 3, 4}, {5, 7, 5}, {2, 1, 1}};
  EXPECT_EQ(measure_rows(dataset), expected) << "a first token is not trained: nothing predicts it";
  EXPECT_EQ(expected[0].tokens(), dataset.tokens(0));
}

TEST(Survey, MeasuresTextsByTheirLabels) {
  const SftDataset dataset({text_of(5, 2), text_of(3, 3)});
  EXPECT_EQ(measure_rows(dataset), (std::vector<RowLengths>{{5, 0, 2}, {3, 0, 2}}));
}

TEST(Survey, PercentilesAreLengthsThatOccur) {
  std::vector<RowLengths> rows;
  for (int64_t i = 1; i <= 100; ++i) rows.push_back({.first = 101 - i, .trained = 1});
  const LengthSummary summary = summarize_lengths(rows);
  EXPECT_EQ(summary.percentiles,
            (std::vector<std::pair<int, int64_t>>{{50, 50}, {75, 75}, {90, 90}, {95, 95}, {99, 99}}));
  EXPECT_EQ(summary.shortest, 1);
  EXPECT_EQ(summary.longest, 100);
  EXPECT_DOUBLE_EQ(summary.mean(), 50.5);
  EXPECT_DOUBLE_EQ(summary.trained_share(), 100.0 / 5050.0);
}

TEST(Survey, TheHistogramCountsEverySequenceOnce) {
  const std::vector<RowLengths> rows = {{1, 17, 1}, {40, 0, 1}, {16, 0, 1}, {8, 7, 1}};
  const LengthSummary summary = summarize_lengths(rows);
  EXPECT_EQ(summary.sequences, 6);
  ASSERT_EQ(summary.histogram.size(), 10u) << "width 4 from 1 to 40";
  EXPECT_EQ(summary.histogram[0], (LengthBin{1, 5, 1}));
  EXPECT_EQ(summary.histogram[1], (LengthBin{5, 9, 2}));
  EXPECT_EQ(summary.histogram[3], (LengthBin{13, 17, 1}));
  EXPECT_EQ(summary.histogram[4], (LengthBin{17, 21, 1}));
  EXPECT_EQ(summary.histogram[9], (LengthBin{37, 41, 1}));
  for (const int64_t longest : {1, 15, 16, 31, 100, 4095, 4096, 1'000'000}) {
    const std::vector<RowLengths> one = {{.first = longest}};
    const auto bins = summarize_lengths(one).histogram;
    EXPECT_LE(bins.size(), 16u) << longest;
    EXPECT_EQ(bins.back().count, 1) << longest;
    EXPECT_GT(bins.back().end, longest);
  }
}

TEST(Survey, TheHistogramBeginsAtTheShortestRow) {
  std::vector<RowLengths> rows;
  for (const int64_t length : {36, 41, 46}) rows.push_back({.first = length});
  const auto bins = summarize_lengths(rows).histogram;
  EXPECT_EQ(bins.size(), 11u);
  EXPECT_EQ(bins.front(), (LengthBin{36, 37, 1}));
  EXPECT_EQ(bins.back(), (LengthBin{46, 47, 1}));
  rows.push_back({.first = 36 + 1000});
  EXPECT_LE(summarize_lengths(rows).histogram.size(), 16u);
}

TEST(Survey, WithoutRowsNothingIsDividedByZero) {
  const LengthSummary summary = summarize_lengths({});
  EXPECT_EQ(summary.sequences, 0);
  EXPECT_EQ(summary.mean(), 0);
  EXPECT_EQ(summary.trained_share(), 0);
  EXPECT_TRUE(summary.histogram.empty());
  EXPECT_EQ(BatchSurvey{}.padding_share(), 0);
}

TEST(Survey, PaddingIsWhatTheLongestOfAMicroBatchAdds) {
  const auto dataset = texts_of({10, 2, 4, 4, 8});
  const auto lengths = measure_rows(*dataset);
  const BatchSurvey survey = survey_batches(*dataset, lengths, in_order(5, 2, 1, 2));
  EXPECT_EQ(survey.rows, 5);
  EXPECT_EQ(survey.steps, 2);
  EXPECT_EQ(survey.micro_batches, 3);
  EXPECT_EQ(survey.tokens, 28);
  EXPECT_EQ(survey.padded_tokens, 20 + 8 + 8);
  EXPECT_EQ(survey.largest_padded, 20);
  EXPECT_EQ(survey.largest, 12);
  EXPECT_DOUBLE_EQ(survey.padding_share(), 8.0 / 36.0);
}

TEST(Survey, BothAnswersOfAPairArePaddedTogether) {
  const DpoDataset dataset({make_pair(2, 3, 1), make_pair(1, 1, 9)});
  const BatchSurvey survey = survey_batches(dataset, measure_rows(dataset), in_order(2, 2, 1, 1));
  EXPECT_EQ(survey.tokens, 5 + 3 + 2 + 10);
  EXPECT_EQ(survey.padded_tokens, 4 * 10);
}

TEST(Survey, BalancedStepsHaveTheSameRowsAndLessPadding) {
  const auto dataset = texts_of({100, 1, 100, 1, 50, 2, 50, 2});
  const auto lengths = measure_rows(*dataset);
  BatchSurveyOptions options = in_order(8, 2, 2, 2);
  const BatchSurvey plain = survey_batches(*dataset, lengths, options);
  options.balance = CostModel{};
  const BatchSurvey balanced = survey_batches(*dataset, lengths, options);
  EXPECT_EQ(balanced.tokens, plain.tokens);
  EXPECT_EQ(balanced.rows, 8);
  EXPECT_EQ(plain.padded_tokens, 600);
  EXPECT_EQ(balanced.padded_tokens, 306) << "equals stand together: 200 + 100 + 4 + 2";
}

TEST(Survey, RowsThatAPlanLeavesOutAreNotCounted) {
  const auto dataset = texts_of({3, 3, 3});
  BatchSurveyOptions options = in_order(3, 1, 2, 1);
  options.plan =
      StepPlan({.rows = 3, .micro_batch_rows = 1, .world = 2, .accumulation = 1, .drop_last = true});
  const BatchSurvey survey = survey_batches(*dataset, measure_rows(*dataset), options);
  EXPECT_EQ(survey.rows, 2);
  EXPECT_EQ(survey.tokens, 6);
}

TEST(Survey, PlansOfOtherDatasetsAreRefused) {
  const auto dataset = texts_of({3, 3, 3});
  const auto lengths = measure_rows(*dataset);
  EXPECT_THROW(survey_batches(*dataset, lengths, in_order(2, 1, 1, 1)), ConfigError);
  EXPECT_THROW(survey_batches(*dataset, std::span(lengths).first(2), in_order(3, 1, 1, 1)), ShapeError);
}

TEST(Survey, APartKeepsItsLengths) {
  const std::shared_ptr<const Dataset> whole = texts_of({3, 5, 7, 9, 11, 13});
  const auto lengths = measure_rows(*std::static_pointer_cast<const SftDataset>(whole));
  const DatasetSplit split = split_dataset(whole, {.ratio = 0.34, .seed = 7});
  for (const auto& part : {split.train, split.held_out}) {
    const auto found = lengths_of_part(*part, *whole, lengths);
    ASSERT_EQ(static_cast<int64_t>(found.size()), part->size());
    for (int64_t i = 0; i < part->size(); ++i)
      EXPECT_EQ(found[static_cast<size_t>(i)].first, part->tokens(i));
  }
  EXPECT_THROW(lengths_of_part(*whole, *split.train, lengths_of_part(*split.train, *whole, lengths)),
               ShapeError);
}

TEST(Survey, CountsTheRowsOfEachFile) {
  const ScratchFolder folder;
  const std::string a = folder.put("a.jsonl", "{\"input_ids\":[1,2],\"labels\":[1,2]}\n\n{}\n").string();
  const std::string b = folder
                            .put("b.jsonl",
                                 "{\"input_ids\":[1,2,3,4],\"labels\":[1,2,3,4]}\n"
                                 "{\"input_ids\":[1,2],\"labels\":[1,2]}\n[]\n1\n")
                            .string();
  NullLogger logger;
  const TokenRowsPrepareOptions options{
      .read = {.files = {a, b + "#3"}, .max_length = 3, .truncation = Truncation::kRight}};
  const auto dataset = prepare_token_rows(options, logger);
  const std::vector<FileCounts> counts = count_files(*dataset, options.read);
  ASSERT_EQ(counts.size(), 2u);
  EXPECT_EQ(counts[0].file, a);
  EXPECT_EQ((std::vector<int64_t>{counts[0].read, counts[0].whole, counts[0].truncated, counts[0].dropped}),
            (std::vector<int64_t>{2, 1, 0, 1}));
  EXPECT_EQ((std::vector<int64_t>{counts[1].read, counts[1].whole, counts[1].truncated, counts[1].dropped}),
            (std::vector<int64_t>{3, 1, 1, 1}));
  std::filesystem::remove(a);
  EXPECT_EQ(count_files(*dataset, options.read).at(0).read, 2) << "the files are not read again";
  const DatasetSplit split = split_dataset(dataset, {.ratio = 0.4, .seed = 1});
  const std::vector<FileCounts> parts = counts_of_part(counts, *split.train);
  int64_t held_out = 0;
  for (size_t f = 0; f < parts.size(); ++f) {
    held_out += parts[f].held_out;
    EXPECT_EQ(parts[f].read, parts[f].whole + parts[f].truncated + parts[f].held_out + parts[f].dropped);
  }
  EXPECT_EQ(held_out, split.held_out->size());
  EXPECT_EQ(held_out, split.train->origin().report.held_out());
}

TEST(Survey, WhereNoRowCanBeUsedAllAreDropped) {
  const ScratchFolder folder;
  const std::string file = folder.put("a.jsonl", "1\n2\n3\n").string();
  const std::vector<FileCounts> counts = count_unusable_files({.files = {file + "#2"}});
  ASSERT_EQ(counts.size(), 1u);
  EXPECT_EQ(counts[0].read, 2);
  EXPECT_EQ(counts[0].dropped, 2);
  EXPECT_EQ(counts[0].whole, 0);
}

}  // namespace
}  // namespace apus::data
