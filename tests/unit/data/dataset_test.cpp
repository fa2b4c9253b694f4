#include "apus/data/dataset.h"

#include <set>

#include "apus/base/error.h"
#include "apus/data/collator.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

using Values = std::vector<int64_t>;

std::shared_ptr<const DpoDataset> make_dataset(int64_t count) {
  std::vector<DpoRow> rows = make_pairs(count);
  for (int64_t i = 0; i < count; ++i)
    rows[static_cast<size_t>(i)].place = {static_cast<int32_t>(i % 2), i + 1};
  DatasetOrigin origin{.files = {"a.jsonl", "b.jsonl"}, .fingerprint = "f0"};
  return std::make_shared<DpoDataset>(std::move(rows), std::move(origin));
}

TEST(Dataset, NamesWhereARowCameFrom) {
  const auto dataset = make_dataset(4);
  EXPECT_EQ(dataset->size(), 4);
  EXPECT_EQ(dataset->place_text(0), "a.jsonl:1");
  EXPECT_EQ(dataset->place_text(3), "b.jsonl:4");
  EXPECT_EQ(DpoDataset(make_pairs(2)).place_text(1), "row 1");
  EXPECT_THROW(dataset->place(4), ShapeError);
}

TEST(Dataset, CollatesItsRows) {
  const auto dataset = make_dataset(4);
  const Batch batch = dataset->collate(Values{3, 1}, {});
  EXPECT_EQ(values_of(batch.tokens_T), values_of(collate_dpo(std::vector{dataset->row(3), dataset->row(1)}, Values{3, 1}, {}).tokens_T));
  const SftDataset texts({{{1, 2}, {-100, 2}}});
  EXPECT_EQ(values_of(texts.collate(Values{0}, {}).targets_M), (Values{2}));
  EXPECT_EQ(texts.place_text(0), "row 0");
}

TEST(Dataset, RefusesLabelsOfAnotherLength) {
  EXPECT_THROW(SftDataset({{{1, 2}, {1}}}), ShapeError);
  EXPECT_THROW(SftDataset(std::vector<SftRow>(1)), ShapeError);
}

TEST(Dataset, ASubsetCountsItsOwnOrdinals) {
  const SubsetDataset subset(make_dataset(6), {5, 0, 3});
  EXPECT_EQ(subset.size(), 3);
  EXPECT_EQ(subset.place_text(0), "b.jsonl:6");
  const Batch batch = subset.collate(Values{2, 0}, {});
  EXPECT_EQ(batch.ordinals, (Values{2, 0}));
  EXPECT_EQ(values_of(batch.tokens_T)[0], 1003);
  EXPECT_EQ(subset.origin().fingerprint, "f0");
  EXPECT_THROW(SubsetDataset(make_dataset(2), {2}), ShapeError);
}

TEST(Dataset, AttentionCostsTheSquareOfARowsTokens) {
  const auto dataset = make_dataset(4);
  const auto tokens = static_cast<double>(dataset->tokens(2));
  EXPECT_EQ(dataset->squared_tokens(2), tokens * tokens);
  EXPECT_EQ(SubsetDataset(dataset, {2}).squared_tokens(0), tokens * tokens);
  EXPECT_THROW(SubsetDataset(dataset, {2}).squared_tokens(1), ShapeError);
}

TEST(Dataset, SplitsIntoPartsThatShareNoRow) {
  const auto dataset = make_dataset(20);
  const DatasetSplit split = split_dataset(dataset, {.ratio = 0.25, .seed = 1});
  EXPECT_EQ(split.held_out->size(), 5);
  EXPECT_EQ(split.train->size(), 15);
  std::set<int64_t> lines;
  for (const auto& part : {split.train, split.held_out}) {
    int64_t before = 0;
    for (int64_t i = 0; i < part->size(); ++i) {
      EXPECT_GT(part->place(i).line, before);
      lines.insert(before = part->place(i).line);
    }
  }
  EXPECT_EQ(lines.size(), 20u);
}

TEST(Dataset, EachPartOfASplitReportsItsOwnRows) {
  DatasetOrigin origin{.files = {"a.jsonl"}};
  for (int i = 0; i < 7; ++i) origin.report.add_whole();
  origin.report.add_truncated();
  origin.report.add_dropped("a.jsonl", 9, {"empty chosen", ""});
  const auto dataset = std::make_shared<DpoDataset>(make_pairs(8), std::move(origin));
  const DatasetSplit split = split_dataset(dataset, {.ratio = 0.25, .seed = 1});
  const RowReport& train = split.train->origin().report;
  const RowReport& held_out = split.held_out->origin().report;
  EXPECT_EQ(train.trained(), 6);
  EXPECT_EQ(train.held_out(), 2);
  EXPECT_EQ(train.input(), 9);
  EXPECT_EQ(held_out.trained(), 2);
  EXPECT_EQ(train.truncated() + held_out.truncated(), 1);
  EXPECT_NE(train.summary().find("rows: 9 read = "), std::string::npos);
  EXPECT_NE(train.summary().find(" + 2 held out + 1 dropped"), std::string::npos);
}

TEST(Dataset, ASplitHoldsOutAtLeastOneRow) {
  EXPECT_EQ(split_dataset(make_dataset(5), {.ratio = 0.01}).held_out->size(), 1);
  EXPECT_THROW(split_dataset(make_dataset(1), {.ratio = 0.5}), ConfigError);
  EXPECT_THROW(split_dataset(make_dataset(5), {.ratio = 0}), ConfigError);
  EXPECT_THROW(split_dataset(make_dataset(5), {.ratio = 1}), ConfigError);
}

}  // namespace
}  // namespace apus::data
