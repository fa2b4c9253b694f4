// Every policy trains as one rank does: a pairwise cover of policies, jobs, worlds, recompute and
// accumulation. tests/slow/train/partition_matrix_test.cpp runs the whole product.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/equality_matrix.h"

namespace apus::testing {
namespace {

constexpr int64_t kSteps = 20;

class EqualityMatrix : public ::testing::TestWithParam<MatrixCell> {};

TEST_P(EqualityMatrix, EqualsOneRank) {
  expect_cell_equals_one_rank(GetParam(), kSteps);
}

INSTANTIATE_TEST_SUITE_P(Cover, EqualityMatrix,
                         ::testing::ValuesIn(matrix_cells(pairwise_cover(matrix_combinations()))),
                         [](const auto& info) { return info.param.name(); });

TEST(EqualityCover, HoldsEveryPairOfLevelsThatIsPossible) {
  const std::vector<Combination> all = matrix_combinations();
  const std::vector<Combination> cover = pairwise_cover(all);
  const auto holds = [](const std::vector<Combination>& list, size_t first, int a, size_t second, int b) {
    return std::ranges::any_of(
        list, [&](const Combination& each) { return each[first] == a && each[second] == b; });
  };
  const std::vector<int> levels{8, 2, 2, 4, 3, 3};
  int pairs = 0, impossible = 0;
  for (size_t first = 0; first < levels.size(); ++first) {
    for (size_t second = first + 1; second < levels.size(); ++second) {
      for (int a = 0; a < levels[first]; ++a) {
        for (int b = 0; b < levels[second]; ++b) {
          ++pairs;
          const bool possible = holds(all, first, a, second, b);
          impossible += possible ? 0 : 1;
          EXPECT_EQ(holds(cover, first, a, second, b), possible)
              << "factors " << first << ", " << second << ": levels " << a << ", " << b;
        }
      }
    }
  }
  // Two policies need four ranks: three worlds and the cut into pairs each; four ranks have no pairs.
  EXPECT_EQ(impossible, 2 * 4 + 1) << "of " << pairs;
  EXPECT_LT(cover.size(), 48U) << "a cover is small";
  EXPECT_EQ(std::set<Combination>(cover.begin(), cover.end()).size(), cover.size());
}

TEST(EqualityMatrix, TrainingMovesEveryJob) {
  for (const Job job : {Job::kFullSft, Job::kFullDpo, Job::kLoraSft, Job::kLoraDpo}) {
    const TinyResult& result = one_rank(job, kSteps);
    ASSERT_EQ(result.losses.size(), static_cast<size_t>(kSteps));
    EXPECT_LT(result.losses.back(), 0.998 * result.losses.front()) << job_name(job);
  }
}

}  // namespace
}  // namespace apus::testing
