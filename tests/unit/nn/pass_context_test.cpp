#include "apus/nn/pass_context.h"

#include <ATen/ops/tensor.h>

#include "apus/base/error.h"
#include "apus/ops/attention.h"
#include "apus/ops/device_rows.h"
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

TEST(RowLayout, CuSeqlensAreTheFirstRowsAndTheEnd) {
  expect_equal(RowLayout::packed({3, 0, 2})->cu_seqlens(), at::tensor({0, 3, 3, 5}, at::kInt));
  expect_equal(RowLayout::padded({3, 1}, 4)->cu_seqlens(), at::tensor({0, 4, 8}, at::kInt));
  expect_equal(RowLayout::packed({})->cu_seqlens(), at::tensor({0}, at::kInt));
}

TEST(RowLayout, RefusesMoreRowsThanKernelsCanIndex_Pitfall45) {
  constexpr int64_t kLimit = int64_t{1} << 31;
  RowLayout layout;  // made by hand: no test can hold its positions
  layout.lengths = {kLimit - 2, 1};
  expect_equal(layout.cu_seqlens(), at::tensor({int64_t{0}, kLimit - 2, kLimit - 1}, at::kLong).to(at::kInt));
  layout.lengths = {kLimit - 2, 2};
  EXPECT_THROW(layout.cu_seqlens(), ShapeError);
  layout = {.lengths = {5, 5}, .padded_length = kLimit / 2};
  EXPECT_THROW(layout.cu_seqlens(), ShapeError);
  EXPECT_THROW(RowLayout::packed({kLimit - 1, 1}), ShapeError);
  EXPECT_THROW(RowLayout::packed({kLimit * kLimit, kLimit * kLimit}), ShapeError);
  EXPECT_THROW(RowLayout::padded({1, 1}, kLimit / 2), ShapeError);
}

TEST(RowLayout, AnswersContinueThePositionsOfTheirPrefix) {
  const auto layout = RowLayout::prefixed({3, 2, 1, 2}, {-1, 0, 0, -1});
  EXPECT_TRUE(layout->is_packed());
  EXPECT_EQ(layout->rows(), 8);
  EXPECT_EQ(layout->first_row(2), 5);
  expect_equal(layout->positions_T, at::tensor({0, 1, 2, 3, 4, 3, 0, 1}, at::kLong));
  EXPECT_TRUE(RowLayout::prefixed({3, 2}, {-1, -1})->prefixes.empty());
}

TEST(RowLayout, RefusesPrefixesThatCannotBe) {
  EXPECT_THROW(RowLayout::prefixed({3, 2}, {-1}), ShapeError);
  EXPECT_THROW(RowLayout::prefixed({3, 2}, {1, -1}), ShapeError);
  EXPECT_THROW(RowLayout::prefixed({3, 2}, {-1, -2}), ShapeError);
  EXPECT_THROW(RowLayout::prefixed({3, 2, 2}, {-1, 0, 1}), ShapeError);
}

TEST(RowLayout, AttentionReadsPlainLayoutsAlone) {
  const auto plain = RowLayout::padded({3, 1}, 4);
  const ops::AttentionRows rows = attention_rows(*plain);
  EXPECT_EQ(rows.lengths.data(), plain->lengths.data());
  EXPECT_EQ(rows.lengths.size(), 2u);
  EXPECT_EQ(rows.padded_length, 4);
  EXPECT_THROW(attention_rows(*RowLayout::prefixed({3, 1}, {-1, 0})), NotSupported);
}

TEST(PassContext, AttentionReadsItsRowsOnTheDeviceToo) {
  PassContext context;
  EXPECT_THROW(attention_rows(context), ShapeError);
  context.rows = RowLayout::packed({3, 1});
  EXPECT_EQ(attention_rows(context).device, nullptr);
  context.device_rows = std::make_shared<const ops::DeviceRows>(context.rows->lengths, 0, at::kCPU);
  const ops::AttentionRows rows = attention_rows(context);
  EXPECT_EQ(rows.lengths.data(), context.rows->lengths.data());
  EXPECT_EQ(rows.device, context.device_rows);
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
