#include "apus/data/batch.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/data/collator.h"
#include "tests/support/tensor_checks.h"

namespace apus::data {
namespace {

class BatchOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA() || c10::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
  }
};

Batch two_pairs() {
  const std::vector<DpoRow> rows = {
      {.prompt_ids = {1, 2, 3}, .chosen_ids = {4, 5, 6, 7}, .rejected_ids = {8, 9}, .margin = 0.5F},
      {.prompt_ids = {1, 2}, .chosen_ids = {4}, .rejected_ids = {8, 9, 10}}};
  Batch batch = collate_dpo(rows, std::vector<int64_t>{0, 1}, {.layout = BatchLayout::kPacked});
  batch.reference_log_probs_S = testing::random_tensor({4}, 1);
  return batch;
}

void expect_same(const Batch& found, const Batch& wanted) {
  for (const auto field :
       {&Batch::tokens_T, &Batch::target_rows_M, &Batch::targets_M, &Batch::target_sequences_M,
        &Batch::pair_margins_P, &Batch::reference_log_probs_S}) {
    ASSERT_TRUE((found.*field).is_cuda());
    EXPECT_EQ((found.*field).scalar_type(), (wanted.*field).scalar_type());
    EXPECT_TRUE((found.*field).cpu().equal(wanted.*field));
  }
}

TEST_F(BatchOnGpu, AllTensorsArriveAndTheRestIsShared) {
  const Batch batch = two_pairs();
  const Batch placed = batch.to_device(at::kCUDA);
  placed.wait_arrival();
  expect_same(placed, batch);
  EXPECT_FALSE(placed.target_weights_M.defined());
  EXPECT_EQ(placed.layout, batch.layout);
  EXPECT_EQ(placed.pairs, 2);
  EXPECT_EQ(placed.ordinals, batch.ordinals);
  EXPECT_TRUE(placed.on_host().tokens_T.is_same(batch.tokens_T));
  EXPECT_TRUE(placed.to_device(at::kCUDA).tokens_T.is_same(placed.tokens_T));
  EXPECT_THROW(placed.to_device(at::kCPU), NotSupported);
}

// Many in a row, so that pinned and device memory is used again while copies are under way.
TEST_F(BatchOnGpu, ManyAheadOfOneAnotherKeepTheirValues) {
  const Batch batch = two_pairs();
  std::vector<Batch> hosts, placed;
  for (int64_t i = 0; i < 100; ++i) {
    Batch next = batch;
    next.tokens_T = batch.tokens_T + i;
    hosts.push_back(next);
    placed.push_back(next.to_device(at::kCUDA));
    if (i % 3 == 0) placed[static_cast<size_t>(i / 3)] = Batch();  // dropped without a wait
  }
  for (size_t i = 34; i < placed.size(); ++i) {
    placed[i].wait_arrival();
    expect_same(placed[i], hosts[i]);
  }
}

TEST_F(BatchOnGpu, EmptyBatchesGoToo) {
  const Batch batch = collate_sft({}, {}, {.layout = BatchLayout::kPacked});
  const Batch placed = batch.to_device(at::kCUDA);
  placed.wait_arrival();
  EXPECT_EQ(placed.target_count(), 0);
  EXPECT_TRUE(placed.target_rows_M.is_cuda());
  EXPECT_TRUE(placed.tokens_T.cpu().equal(batch.tokens_T));
}

}  // namespace
}  // namespace apus::data
