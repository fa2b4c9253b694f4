// numbers.md point 1 in full: worlds x strategies x jobs x recompute x accumulation. partition_test.cpp holds the
// cover that runs by default.
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "tests/support/partition_checks.h"

namespace apus::testing {
namespace {

/// Every way to cut twelve rows over a world.
std::vector<std::pair<int64_t, int64_t>> cuts(int world) {
  std::vector<std::pair<int64_t, int64_t>> found;
  const int64_t rows = 12 / world;
  for (int64_t micro = 1; micro <= rows; ++micro) {
    if (rows % micro == 0) found.emplace_back(micro, rows / micro);
  }
  return found;
}

class PartitionMatrix : public ::testing::TestWithParam<std::tuple<Job, int, bool, bool>> {};

TEST_P(PartitionMatrix, EqualsOneRank) {
  const auto [job, world, zero2, recompute] = GetParam();
  static const TinyResult sft = train_on(1, {.job = Job::kFullSft});
  static const TinyResult dpo = train_on(1, {.job = Job::kLoraDpo});
  const TinyResult& wanted = job == Job::kFullSft ? sft : dpo;
  for (const auto& [micro, accumulation] : cuts(world)) {
    TinyRun run{.job = job, .micro_batch_rows = micro, .accumulation = accumulation};
    if (zero2) run.policy = parallel::Zero2();
    if (recompute) run.recompute = parallel::Recompute::kBlock;
    const std::string what = describe(world, run);
    const TinyResult found = train_on(world, run);
    expect_same_numbers(found, wanted, job, what);
    expect_same_weights(found, wanted, run, reference_layout(run), what);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PartitionMatrix,
                         ::testing::Combine(::testing::Values(Job::kFullSft, Job::kLoraDpo),
                                            ::testing::Values(1, 2, 3, 4), ::testing::Bool(), ::testing::Bool()));

}  // namespace
}  // namespace apus::testing
