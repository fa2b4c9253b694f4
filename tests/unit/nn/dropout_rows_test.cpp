#include "apus/nn/dropout_rows.h"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "apus/base/error.h"

namespace apus::nn {
namespace {

TEST(DropoutRows, ASequenceARowHasItsPlaceAndPositions) {
  const auto rows = dropout_rows(*RowLayout::packed({2, 0, 3}), {.seed = 9, .epoch = 4, .places = {7, 8, 5}});
  EXPECT_EQ(rows->seed, 9u);
  EXPECT_EQ(rows->rows->epoch, 4u);
  EXPECT_EQ(rows->rows->ordinals, (std::vector<uint32_t>{7, 7, 5, 5, 5}));
  EXPECT_EQ(rows->rows->sides, std::vector<uint8_t>(5, 0));
  EXPECT_EQ(rows->rows->positions, (std::vector<uint32_t>{0, 1, 0, 1, 2}));
}

TEST(DropoutRows, PaddingAddsRowsAndChangesNone) {
  const auto rows = dropout_rows(*RowLayout::padded({2, 3}, 4), {.places = {7, 5}});
  EXPECT_EQ(rows->rows->ordinals, (std::vector<uint32_t>{7, 7, 7, 7, 5, 5, 5, 5}));
  EXPECT_EQ(rows->rows->positions, (std::vector<uint32_t>{0, 1, 2, 3, 0, 1, 2, 3}));
}

TEST(DropoutRows, TwiceAsManySequencesAreChosenThenRejected) {
  const auto rows = dropout_rows(*RowLayout::packed({1, 2, 2, 1}), {.places = {3, 4}});
  EXPECT_EQ(rows->rows->ordinals, (std::vector<uint32_t>{3, 4, 4, 3, 3, 4}));
  EXPECT_EQ(rows->rows->sides, (std::vector<uint8_t>{0, 0, 0, 1, 1, 1}));
}

TEST(DropoutRows, AMicroBatchWithoutRowsHasCoordinatesToo) {
  const auto rows = dropout_rows(*RowLayout::packed({1, 1}), {});
  EXPECT_EQ(rows->rows->ordinals, (std::vector<uint32_t>{0, 0}));
}

TEST(DropoutRows, SomeRowsKeepTheirCoordinates) {
  const auto all = dropout_rows(*RowLayout::packed({2, 3}), {.seed = 9, .epoch = 4, .places = {7, 5}});
  const auto some = dropout_at(*all, at::tensor({1, 1, 4}, at::kLong));
  EXPECT_EQ(some->seed, 9u);
  EXPECT_EQ(some->rows->epoch, 4u);
  EXPECT_EQ(some->rows->ordinals, (std::vector<uint32_t>{7, 7, 5}));
  EXPECT_EQ(some->rows->sides, std::vector<uint8_t>(3, 0));
  EXPECT_EQ(some->rows->positions, (std::vector<uint32_t>{1, 1, 2}));
  EXPECT_TRUE(dropout_at(*all, at::tensor(std::vector<int64_t>{}, at::kLong))->rows->ordinals.empty());
  EXPECT_THROW(dropout_at(*all, at::tensor({5}, at::kLong)), ShapeError);
  EXPECT_THROW(dropout_at(*all, at::tensor({-1}, at::kLong)), ShapeError);
  EXPECT_THROW(dropout_at(*all, at::tensor({1}, at::kInt)), ShapeError);
}

TEST(DropoutRows, RefusesWhatDoesNotFit) {
  const auto layout = RowLayout::packed({1, 2, 1});
  EXPECT_THROW(dropout_rows(*layout, {.places = {1, 2}}), ShapeError);
  EXPECT_THROW(dropout_rows(*layout, {.places = {1, 2, -1}}), ShapeError);
  EXPECT_THROW(dropout_rows(*layout, {.places = {1, 2, int64_t{1} << 32}}), ShapeError);
  EXPECT_THROW(dropout_rows(*layout, {.epoch = -1, .places = {1, 2, 3}}), ShapeError);
  EXPECT_THROW(dropout_rows(*layout, {.epoch = int64_t{1} << 31, .places = {1, 2, 3}}), ShapeError);
  EXPECT_THROW(dropout_rows(*RowLayout::prefixed({2, 1, 1}, {-1, 0, 0}), {.places = {1}}), NotSupported);
}

}  // namespace
}  // namespace apus::nn
