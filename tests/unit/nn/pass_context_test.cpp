#include "apus/nn/pass_context.h"

#include <ATen/ops/tensor.h>

#include "apus/base/error.h"
#include "tests/support/tensor_checks.h"

namespace apus::nn {
namespace {

using namespace apus::testing;

TEST(RowLayout, PackedSequencesFollowEachOther) {
  const auto layout = RowLayout::packed({3, 0, 2});
  EXPECT_TRUE(layout->is_packed());
  EXPECT_EQ(layout->batch(), 3);
  EXPECT_EQ(layout->rows(), 5);
  EXPECT_EQ(layout->max_length, 3);
  EXPECT_EQ(layout->first_row(0), 0);
  EXPECT_EQ(layout->first_row(1), 3);
  EXPECT_EQ(layout->first_row(2), 3);
  expect_equal(layout->positions_T, at::tensor({0, 1, 2, 0, 1}, at::kLong));
}

TEST(RowLayout, PaddedSequencesTakeEqualRowsAndPositionsCountOn) {
  const auto layout = RowLayout::padded({3, 1}, 4);
  EXPECT_FALSE(layout->is_packed());
  EXPECT_EQ(layout->rows(), 8);
  EXPECT_EQ(layout->first_row(1), 4);
  EXPECT_EQ(layout->max_length, 3);
  expect_equal(layout->positions_T, at::tensor({0, 1, 2, 3, 0, 1, 2, 3}, at::kLong));
}

TEST(RowLayout, MayBeEmpty) {
  const auto layout = RowLayout::packed({});
  EXPECT_EQ(layout->rows(), 0);
  EXPECT_EQ(layout->max_length, 0);
  EXPECT_EQ(layout->positions_T.numel(), 0);
}

TEST(RowLayout, RefusesWhatDoesNotFit) {
  EXPECT_THROW(RowLayout::padded({3, 5}, 4), ShapeError);
  EXPECT_THROW(RowLayout::padded({}, 0), ShapeError);
  EXPECT_THROW(RowLayout::packed({3, -1}), ShapeError);
  EXPECT_THROW(RowLayout::packed({3})->first_row(1), ShapeError);
  EXPECT_THROW(RowLayout::packed({3})->first_row(-1), ShapeError);
}

}  // namespace
}  // namespace apus::nn
