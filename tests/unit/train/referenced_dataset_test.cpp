#include "apus/train/referenced_dataset.h"

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/data/packing.h"
#include "tests/support/tiny_training.h"

namespace apus::train {
namespace {

using testing::Job;
using testing::tiny_rows;

/// A table whose numbers say which row they are of.
std::shared_ptr<ReferenceTable> table_for(const data::Dataset& rows) {
  auto table = std::make_shared<ReferenceTable>();
  for (int64_t row = 0; row < rows.size(); ++row) {
    table->row_hashes.push_back(pair_hashes(rows.collate(std::vector<int64_t>{row}, {})).at(0));
    table->chosen.push_back(static_cast<float>(row));
    table->rejected.push_back(static_cast<float>(row) + 0.5F);
  }
  return table;
}

std::vector<float> carried(const data::Batch& batch) {
  const at::Tensor& values = batch.reference_log_probs_S;
  return {values.const_data_ptr<float>(), values.const_data_ptr<float>() + values.numel()};
}

TEST(ReferencedDataset, BatchesCarryWhatBelongsToTheirPairs) {
  const auto rows = tiny_rows(Job::kLoraDpo, 5);
  const ReferencedDataset dataset(rows, table_for(*rows));
  for (const auto layout : {data::BatchLayout::kPadded, data::BatchLayout::kPacked}) {
    const data::Batch batch = dataset.collate(std::vector<int64_t>{3, 1}, {.layout = layout});
    EXPECT_EQ(carried(batch), (std::vector<float>{3, 1, 3.5, 1.5}));
  }
  EXPECT_EQ(dataset.size(), 5);
  EXPECT_EQ(dataset.tokens(2), rows->tokens(2));
  EXPECT_FALSE(dataset.collate({}, {}).reference_log_probs_S.defined());
}

TEST(ReferencedDataset, PacksAndSubsetsFindTheirRows) {
  const auto rows = tiny_rows(Job::kLoraDpo, 5);
  const auto table = table_for(*rows);
  const auto packs = std::make_shared<data::PackedDataset>(rows, data::PackingOptions{.packing_length = 60});
  const ReferencedDataset outside(packs, table);
  const data::PackedDataset inside(std::make_shared<ReferencedDataset>(rows, table), {.packing_length = 60});
  for (int64_t pack = 0; pack < packs->size(); ++pack) {
    const std::vector<int64_t> one{pack};
    EXPECT_EQ(carried(outside.collate(one, {})), carried(inside.collate(one, {})));
    EXPECT_EQ(carried(outside.collate(one, {})).at(0), static_cast<float>(packs->rows_of(pack)[0]));
  }
  const auto subset = std::make_shared<data::SubsetDataset>(rows, std::vector<int64_t>{4, 2});
  const ReferencedDataset of_subset(subset, table_for(*subset));
  EXPECT_EQ(carried(of_subset.collate(std::vector<int64_t>{1, 0}, {})), (std::vector<float>{1, 0, 1.5, 0.5}));
}

TEST(ReferencedDataset, APairThatTheReferenceDidNotSeeIsRefused) {
  const auto rows = tiny_rows(Job::kLoraDpo, 5);
  auto table = table_for(*rows);
  table->row_hashes[2] ^= 1;
  const ReferencedDataset dataset(rows, table);
  EXPECT_NO_THROW(dataset.collate(std::vector<int64_t>{0, 1}, {}));
  EXPECT_THROW(dataset.collate(std::vector<int64_t>{1, 2}, {}), DataError);
  table->chosen.pop_back();
  EXPECT_THROW(ReferencedDataset(rows, table), ShapeError);
  EXPECT_THROW(ReferencedDataset(tiny_rows(Job::kLoraDpo, 4), table_for(*rows)), ShapeError);
}

TEST(ReferencedDataset, HashesTellPairsApartWhateverTheirPadding) {
  const auto rows = tiny_rows(Job::kLoraDpo, 5);
  const auto together = pair_hashes(rows->collate(std::vector<int64_t>{0, 1, 2}, {}));
  for (int64_t row = 0; row < 3; ++row) {
    const auto alone =
        pair_hashes(rows->collate(std::vector<int64_t>{row}, {.layout = data::BatchLayout::kPacked}));
    EXPECT_EQ(alone.at(0), together.at(static_cast<size_t>(row)));
  }
  EXPECT_NE(together[0], together[1]);
  // The same tokens, cut elsewhere between prompt and answer.
  const data::DpoDataset cut({{.prompt_ids = {1, 2}, .chosen_ids = {3, 4}, .rejected_ids = {5}},
                              {.prompt_ids = {1}, .chosen_ids = {2, 3, 4}, .rejected_ids = {2, 5}}});
  const auto hashes = pair_hashes(cut.collate(std::vector<int64_t>{0, 1}, {}));
  EXPECT_NE(hashes[0], hashes[1]);
  EXPECT_THROW(pair_hashes(tiny_rows(Job::kFullSft, 2)->collate(std::vector<int64_t>{0}, {})), ConfigError);
}

}  // namespace
}  // namespace apus::train
