#include "apus/parallel/grad_norm.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "apus/base/error.h"
#include "apus/optim/update_threads.h"
#include "tests/support/tensor_checks.h"

namespace apus::parallel {
namespace {

TEST(GradNorm, EqualsTheSumInDouble) {
  for (const int64_t count : {0, 1, 7, 1023, 1024, 1025, 5000}) {
    const at::Tensor grad = apus::testing::random_tensor({count}, 1);
    const double wanted = grad.to(at::kDouble).square().sum().item<double>();
    EXPECT_NEAR(sum_of_squares(grad), wanted, 1e-12 * wanted) << count;
  }
}

TEST(GradNorm, ShardsOfWholeBlocksAddUpToTheSameBits) {
  const at::Tensor grad = apus::testing::random_tensor({4096}, 2);
  double sum = 0.0;
  for (int64_t begin = 0; begin < 4096; begin += 1024)
    sum += sum_of_squares(grad.slice(0, begin, begin + 1024));
  EXPECT_EQ(sum, sum_of_squares(grad));
}

TEST(GradNorm, RefusesOtherDtypes) {
  EXPECT_THROW(sum_of_squares(apus::testing::random_tensor({4}, 1).to(at::kDouble)), ShapeError);
}

TEST(GradNorm, RunsWeighTheirElementsWhereverBlocksAreCut) {
  // pitfalls.md row 20: a parameter that several ranks hold is to count once
  const at::Tensor grad = apus::testing::random_tensor({3000}, 3);
  const std::vector<WeightedRun> runs{{10, 20, 0.0}, {1000, 2500, 0.5}};
  const auto part = [&](int64_t begin, int64_t end) {
    return grad.slice(0, begin, end).to(at::kDouble).square().sum().item<double>();
  };
  const double wanted = part(0, 10) + part(20, 1000) + 0.5 * part(1000, 2500) + part(2500, 3000);
  EXPECT_NEAR(sum_of_squares(grad, runs), wanted, 1e-12 * wanted);
  EXPECT_EQ(block_sums_of_squares(grad, runs).size(), 3U);
}

TEST(GradNorm, BlocksHaveTheSameBitsWhoeverSumsThem) {
  const int64_t count =
      int64_t{9} * 256 * 1024 + 77;  // shared where libtorch has two threads, and the team's
  const std::vector<WeightedRun> runs{{300'000, 900'000, 0.5}};
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor grad = apus::testing::random_tensor({count}, 5, dtype);
    std::vector<double> wanted;
    for (int64_t begin = 0; begin < count; begin += 1024) {
      const int64_t end = std::min(begin + 1024, count);
      const WeightedRun run{std::clamp(runs[0].begin, begin, end) - begin,
                            std::clamp(runs[0].end, begin, end) - begin, 0.5};
      wanted.push_back(block_sums_of_squares(grad.slice(0, begin, end), {{run}}).front());
    }
    optim::UpdateThreads team(3);
    EXPECT_EQ(block_sums_of_squares(grad, runs, &team), wanted);
    EXPECT_EQ(block_sums_of_squares(grad, runs), wanted);
  }
}

TEST(GradNorm, Bfloat16GradientsAreWidened) {
  const at::Tensor grad = apus::testing::random_tensor({100}, 4, at::kBFloat16);
  EXPECT_EQ(sum_of_squares(grad), sum_of_squares(grad.to(at::kFloat)));
}

}  // namespace
}  // namespace apus::parallel
