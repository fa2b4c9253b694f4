// numbers.md point 1: losses, gradient norms and weights do not depend on how a step's rows are split.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "tests/support/partition_checks.h"

namespace apus::testing {
namespace {

struct Split {
  int world;
  int64_t micro;
  int64_t accumulation;
};

/// One rank, one row a micro-batch, everything replicated: what all splits must equal.
const TinyResult& reference(Job job) {
  static const std::map<Job, TinyResult> results = [] {
    std::map<Job, TinyResult> made;
    for (const Job each : {Job::kFullSft, Job::kLoraDpo}) made[each] = train_on(1, {.job = each});
    return made;
  }();
  return results.at(job);
}

void expect_equal_to_one_rank(const Split& split, TinyRun run) {
  run.micro_batch_rows = split.micro;
  run.accumulation = split.accumulation;
  const std::string what = describe(split.world, run);
  const TinyResult found = train_on(split.world, run);
  expect_same_numbers(found, reference(run.job), run.job, what);
  expect_same_weights(found, reference(run.job), run, reference_layout(run), what);
}

TEST(Partition, TrainingMovesTheLoss) {
  for (const Job job : {Job::kFullSft, Job::kLoraDpo}) {
    const TinyResult& result = reference(job);
    ASSERT_EQ(result.losses.size(), 20u);
    EXPECT_LT(result.losses.back(), 0.95 * result.losses.front());
  }
}

TEST(Partition, DpoStartsAtLnTwo) { EXPECT_NEAR(reference(Job::kLoraDpo).losses.front(), std::log(2.0), 1e-6); }

TEST(Partition, FullSftUnderDdpEqualsOneRank) {
  const TinyRun run{.job = Job::kFullSft, .policy = parallel::Ddp()};
  expect_equal_to_one_rank({2, 1, 6}, run);
  expect_equal_to_one_rank({3, 4, 1}, run);
}

TEST(Partition, FullSftUnderZero2EqualsOneRank) {
  TinyRun run{.job = Job::kFullSft, .policy = parallel::Zero2()};
  expect_equal_to_one_rank({1, 3, 4}, run);
  expect_equal_to_one_rank({3, 1, 4}, run);
  run.recompute = parallel::Recompute::kBlock;
  expect_equal_to_one_rank({4, 1, 3}, run);
}

TEST(Partition, LoraDpoUnderDdpEqualsOneRank) {
  TinyRun run{.job = Job::kLoraDpo, .policy = parallel::Ddp(), .recompute = parallel::Recompute::kBlock};
  expect_equal_to_one_rank({4, 3, 1}, run);
  run.layout = data::BatchLayout::kPacked;
  expect_equal_to_one_rank({2, 2, 3}, run);
}

TEST(Partition, LoraDpoUnderZero2EqualsOneRank) {
  TinyRun run{.job = Job::kLoraDpo, .policy = parallel::Zero2()};
  expect_equal_to_one_rank({2, 6, 1}, run);
  run.recompute = parallel::Recompute::kBlock;
  expect_equal_to_one_rank({4, 1, 3}, run);
}

TEST(Partition, SeveralBucketsEqualOne) {
  TinyRun run{.job = Job::kFullSft, .policy = parallel::Zero2(), .bucket_elements = 4096};
  run.accumulation = 4;
  const TinyResult found = train_on(3, run);
  expect_same_numbers(found, reference(Job::kFullSft), Job::kFullSft, describe(3, run));
}

TEST(Partition, AShortLastStepCountsEveryRowOnce) {
  // 31 rows in steps of 12: the third step of an epoch has 7, so some ranks run empty micro-batches.
  TinyRun run{.job = Job::kFullSft, .rows = 31, .steps = 6};
  const TinyResult wanted = train_on(1, run);
  run.policy = parallel::Zero2();
  run.accumulation = 3;
  const TinyResult found = train_on(4, run);
  expect_same_numbers(found, wanted, run.job, describe(4, run));
}

TEST(Partition, UntiedWeightsAndNormsTrainAlike) {
  TinyRun run{.job = Job::kFullSft, .steps = 5, .tied = false};
  const TinyResult wanted = train_on(1, run);
  run.policy = parallel::Zero2();
  run.accumulation = 6;
  expect_same_numbers(train_on(2, run), wanted, run.job, describe(2, run));
}

TEST(Partition, Bfloat16KeepsMastersAndLearns) {
  TinyRun run{.job = Job::kLoraDpo, .policy = parallel::Zero2(), .accumulation = 6, .dtype = at::kBFloat16};
  const TinyResult found = train_on(2, run);
  EXPECT_NEAR(found.losses.front(), std::log(2.0), 1e-6);
  EXPECT_LT(found.losses.back(), 0.97 * found.losses.front());
  for (const auto& parameter : found.after) EXPECT_EQ(parameter.tensor.scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace apus::testing
