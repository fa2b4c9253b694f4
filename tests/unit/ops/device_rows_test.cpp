#include "apus/ops/device_rows.h"

#include <ATen/ops/tensor.h>

#include <vector>

#include "apus/base/error.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

DeviceRows rows_of(const std::vector<int64_t>& lengths, int64_t padded_length = 0) {
  return DeviceRows(lengths, padded_length, at::kCPU);
}

TEST(DeviceRows, PackedSequencesFollowOneAnother) {
  const DeviceRows rows = rows_of({3, 0, 5});
  EXPECT_EQ(rows.sequences(), 3);
  EXPECT_EQ(rows.slots(), 16);
  EXPECT_EQ(rows.rows(), 8);
  EXPECT_EQ(rows.max_length(), 5);
  EXPECT_EQ(rows.max_extent(), 5);
  EXPECT_FALSE(rows.has_padding());
  expect_equal(rows.cu_seqlens(), at::tensor({0, 3, 3, 8}, at::kInt));
  expect_equal(rows.lengths().narrow(0, 0, 4), at::tensor({3, 0, 5, 0}, at::kInt));
}

TEST(DeviceRows, SomeOfThemHaveRowsOfTheirOwn) {
  const std::vector<int64_t> last = {5, 2};
  const auto part = rows_of({3, 0, 5, 2}, 6).of(last);
  EXPECT_EQ(part->rows(), 12);
  EXPECT_TRUE(part->has_padding());
  expect_equal(part->cu_seqlens(), at::tensor({0, 6, 12}, at::kInt));
  EXPECT_EQ(rows_of({3, 0, 5, 2}).of(last)->rows(), 7);
}

TEST(DeviceRows, PaddedSequencesLieAStrideApart) {
  const DeviceRows rows = rows_of({3, 0, 5}, 6);
  EXPECT_EQ(rows.rows(), 18);
  EXPECT_EQ(rows.max_length(), 5);
  EXPECT_EQ(rows.max_extent(), 6);
  EXPECT_TRUE(rows.has_padding());
  expect_equal(rows.cu_seqlens(), at::tensor({0, 6, 12, 18}, at::kInt));
  EXPECT_FALSE(rows_of({6, 6}, 6).has_padding());
}

TEST(DeviceRows, OffsetsCountElementsAndEndBehindTheLastSequence) {
  const DeviceRows rows = rows_of({3, 5});
  const at::Tensor narrow = rows.offsets(1000);
  EXPECT_EQ(narrow.numel(), 17);
  expect_equal(narrow.narrow(0, 0, 4), at::tensor({0, 3000, 8000, 8000}, at::kInt));
  EXPECT_EQ(narrow[16].item<int32_t>(), 8000);
  EXPECT_EQ(rows.offsets(1000).data_ptr(), narrow.data_ptr());
}

TEST(DeviceRows, RefusesOffsetsBeyond31Bits) {
  const DeviceRows rows = rows_of({3, 5});
  EXPECT_EQ(rows.offsets((int64_t{1} << 28) - 1)[2].item<int32_t>(), (int64_t{1} << 31) - 8);
  EXPECT_THROW(rows.offsets(int64_t{1} << 28), ShapeError);
}

TEST(DeviceRows, SlotsGrowByFours) {
  for (const auto& [sequences, slots] : std::vector<std::pair<size_t, int64_t>>{
           {0, 16}, {1, 16}, {16, 16}, {17, 64}, {65, 256}, {257, 1024}}) {
    const DeviceRows rows = rows_of(std::vector<int64_t>(sequences, 1));
    EXPECT_EQ(rows.slots(), slots);
    EXPECT_EQ(rows.lengths().numel(), slots);
    EXPECT_EQ(rows.lengths().sum().item<int64_t>(), static_cast<int64_t>(sequences));
  }
}

TEST(DeviceRows, RefusesLengthsThatDoNotFit) {
  EXPECT_THROW(rows_of({3, -1}), ShapeError);
  EXPECT_THROW(rows_of({3, 7}, 6), ShapeError);
  EXPECT_THROW(rows_of({int64_t{1} << 31}), ShapeError);
}

}  // namespace
}  // namespace apus::ops
