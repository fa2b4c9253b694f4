#include "comm/local_collectives.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace apus::comm {
namespace {

TEST(ReduceRows, SumsInRankOrderAndScalesAfterwards) {
  // (1e8 + -1e8) + 1 = 1 in this order; any other order of fp32 gives 0.
  const at::Tensor parts = at::tensor({1e8F, -1e8F, 1.0F}).view({3, 1});
  const at::Tensor out = at::empty({1});
  reduce_rows(out, parts, {.scale = 0.25});
  EXPECT_EQ(out.item<float>(), 0.25F);
}

TEST(ReduceRows, Bfloat16AccumulatesInFp32AndRoundsOnce) {
  // Each step in bfloat16 would stay at 256.
  const at::Tensor parts = at::tensor({256.0F, 1.0F, 1.0F, 1.0F, 1.0F}).to(at::kBFloat16).view({5, 1});
  const at::Tensor out = at::empty({1}, at::kBFloat16);
  reduce_rows(out, parts, {});
  EXPECT_EQ(out.item<float>(), 260.0F);
}

TEST(ReduceRows, MaxAndMin) {
  const at::Tensor parts = at::tensor({1, 9, 5, 2, 3, 4}, at::kLong).view({3, 2});
  const at::Tensor out = at::empty({2}, at::kLong);
  reduce_rows(out, parts, {.op = ReduceOp::kMax});
  EXPECT_TRUE(at::equal(out, at::tensor({5, 9}, at::kLong)));
  reduce_rows(out, parts, {.op = ReduceOp::kMin});
  EXPECT_TRUE(at::equal(out, at::tensor({1, 2}, at::kLong)));
}

TEST(LocalCollectives, LeaveVersionCountersAlone) {
  const at::Tensor tensor = at::zeros({4});
  const auto version = tensor._version();
  scale_in_place(tensor, 2.0);
  zero_flat(tensor);
  EXPECT_EQ(tensor[3].item<float>(), 0.0F);
  copy_flat(tensor, at::full({2, 2}, 3.0));
  EXPECT_EQ(tensor._version(), version);
  EXPECT_EQ(tensor[3].item<float>(), 3.0F);
}

TEST(LocalCollectives, PartsAndBytesAreViews) {
  const at::Tensor tensor = at::arange(6, at::kFloat).view({2, 3});
  EXPECT_TRUE(at::equal(flat_part(tensor, 1, 3), at::tensor({2.0F, 3.0F})));
  EXPECT_EQ(flat_part(tensor, 0, 3).data_ptr(), tensor.data_ptr());
  EXPECT_EQ(byte_view(tensor).numel(), 24);
  EXPECT_EQ(byte_view(tensor).data_ptr(), tensor.data_ptr());
}

TEST(LocalCollectives, OwnPartMovesAlone) {
  const at::Tensor in = at::arange(4, at::kFloat);
  const at::Tensor out = at::full({5}, -1.0F);
  move_own_part(out, in, {2, 2, 1}, {1, 2, 1}, 1);
  EXPECT_TRUE(at::equal(out, at::tensor({-1.0F, -1.0F, 1.0F, 2.0F, -1.0F})));
}

TEST(LocalCollectives, FinishedWorkIsFinished) {
  const auto work = finished_work();
  EXPECT_TRUE(work->is_completed());
  EXPECT_NO_THROW(work->wait());
}

}  // namespace
}  // namespace apus::comm
