#include "apus/ops/row_room.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::ops {
namespace {

TEST(RowRoom, ViewsRowsInsideTheWiderStorage) {
  const at::Tensor x = empty_with_room(3, 4, {.before = 2, .after = 1}, at::kFloat);
  EXPECT_EQ(x.sizes(), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(x.strides(), (std::vector<int64_t>{7, 1}));
  at::Tensor wide = with_room(x, {.before = 2, .after = 1});
  EXPECT_EQ(wide.sizes(), (std::vector<int64_t>{3, 7}));
  wide.fill_(-1.0);
  x.fill_(1.0);
  EXPECT_EQ(wide.sum().item<float>(), 12.0F - 9.0F);
  EXPECT_EQ(wide[1][1].item<float>(), -1.0F);
  EXPECT_EQ(wide[1][2].item<float>(), 1.0F);
}

TEST(RowRoom, IsSeenOnlyWhereTheStorageHasIt) {
  const at::Tensor dense = at::empty({3, 4}, at::kFloat);
  EXPECT_TRUE(has_room(dense, {}));
  EXPECT_FALSE(has_room(dense, {.after = 1}));
  // Columns of a narrower neighbour are no room: the last row's would lie beyond the storage.
  const at::Tensor cut = at::empty({3, 7}, at::kFloat).narrow(1, 3, 4);
  EXPECT_TRUE(has_room(cut, {.before = 3}));
  EXPECT_FALSE(has_room(cut, {.before = 2, .after = 1}));
  EXPECT_FALSE(has_room(at::empty({4, 3}, at::kFloat).t(), {}));
  EXPECT_THROW(with_room(dense, {.before = 1}), ShapeError);
  EXPECT_THROW(empty_with_room(-1, 4, {}, at::kFloat), ShapeError);
}

TEST(RowRoom, HoldsForNoRows) {
  const at::Tensor none = empty_with_room(0, 4, {.after = 2}, at::kFloat);
  EXPECT_TRUE(has_room(none, {.after = 2}));
  EXPECT_EQ(with_room(none, {.after = 2}).sizes(), (std::vector<int64_t>{0, 6}));
}

}  // namespace
}  // namespace apus::ops
