#include "apus/data/balance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "apus/base/error.h"
#include "apus/base/philox.h"
#include "apus/data/sampler.h"
#include "tests/unit/data/support/rows_fixture.h"
#include "tests/unit/data/support/texts.h"

namespace apus::data {
namespace {

using Values = std::vector<int64_t>;
using Chunks = std::vector<Values>;

std::vector<double> random_costs(int64_t count) {
  const PhiloxSequence random(5, "costs");
  std::vector<double> costs;
  for (int64_t i = 0; i < count; ++i)
    costs.push_back(1 + 99 * std::pow(random.uniform(static_cast<uint64_t>(i)), 3));
  return costs;
}

double sum_of(const Values& chunk, const std::vector<double>& costs) {
  return std::accumulate(chunk.begin(), chunk.end(), 0.0,
                         [&](double sum, int64_t index) { return sum + costs[static_cast<size_t>(index)]; });
}

/// How StepPlan deals the same rows.
Chunks in_order(int64_t rows, const DealOptions& options) {
  const StepPlan plan({.rows = rows,
                       .micro_batch_rows = options.micro_batch_rows,
                       .world = options.world,
                       .accumulation = rows});
  Chunks chunks;
  for (int64_t m = 0; m < plan.micro_batches(0); ++m)
    for (int64_t rank = 0; rank < options.world; ++rank) {
      const OrderRange range = plan.micro_batch_range(0, m, rank);
      chunks.emplace_back(static_cast<size_t>(range.count));
      std::iota(chunks.back().begin(), chunks.back().end(), range.first);
    }
  return chunks;
}

/// Sums of the ranks, and the largest difference between micro-batches of one round.
struct Spread {
  std::vector<double> ranks;
  double round = 0;
};

Spread spread_of(const Chunks& chunks, const std::vector<double>& costs, int64_t world) {
  Spread spread{.ranks = std::vector<double>(static_cast<size_t>(world), 0.0)};
  for (size_t first = 0; first < chunks.size(); first += spread.ranks.size()) {
    double least = std::numeric_limits<double>::max(), most = 0;
    for (size_t rank = 0; rank < spread.ranks.size(); ++rank) {
      const double sum = sum_of(chunks[first + rank], costs);
      spread.ranks[rank] += sum;
      least = std::min(least, sum);
      most = std::max(most, sum);
    }
    spread.round = std::max(spread.round, most - least);
  }
  return spread;
}

double gap(const std::vector<double>& sums) {
  const auto [least, most] = std::minmax_element(sums.begin(), sums.end());
  return *most - *least;
}

TEST(Balance, DealsTheCostliestFirstAndEvensTheRanksOut) {
  const std::vector<double> costs = {1, 8, 3, 6, 5, 2, 7, 4};
  // 8 + 7 to rank 0, 6 + 5 to rank 1; then 4 + 3 to rank 1, which has less, and 2 + 1 to rank 0: 18 each.
  EXPECT_EQ(balance_step(costs, {.micro_batch_rows = 2, .world = 2}),
            (Chunks{{1, 6}, {3, 4}, {0, 5}, {2, 7}}));
}

TEST(Balance, EvenCostsPutDearAndCheapRowsTogether) {
  const std::vector<double> costs = {1, 8, 3, 6, 5, 2, 7, 4};
  // Round one is 8 7 6 5: 8 to rank 0, 7 and 6 to rank 1, 5 to rank 0. Round two is 4 3 2 1, the sums even
  // again.
  EXPECT_EQ(balance_step(costs, {.micro_batch_rows = 2, .world = 2, .goal = DealGoal::kEvenCosts}),
            (Chunks{{1, 4}, {3, 6}, {0, 7}, {2, 5}}));
}

TEST(Balance, EqualCostsAreDealtAsThePlanDealsThem) {
  for (const int64_t rows : {1, 7, 12, 13}) {
    const DealOptions options{.micro_batch_rows = 2, .world = 3};
    EXPECT_EQ(balance_step(std::vector<double>(static_cast<size_t>(rows), 4.0), options),
              in_order(rows, options));
  }
}

TEST(Balance, EveryRowIsDealtOnceInMicroBatchesOfThePlansSizes) {
  for (const int64_t rows : {1, 5, 12, 13, 31, 64})
    for (const int64_t micro : {1, 2, 3})
      for (const int64_t world : {1, 2, 3, 4, -3}) {
        const DealOptions options{.micro_batch_rows = micro,
                                  .world = std::abs(world),
                                  .goal = world < 0 ? DealGoal::kEvenCosts : DealGoal::kLikeCosts};
        const Chunks found = balance_step(random_costs(rows), options), plan = in_order(rows, options);
        ASSERT_EQ(found.size(), plan.size());
        Values rows_found, sizes, plan_sizes;
        for (size_t c = 0; c < found.size(); ++c) {
          EXPECT_TRUE(std::is_sorted(found[c].begin(), found[c].end()));
          rows_found.insert(rows_found.end(), found[c].begin(), found[c].end());
          sizes.push_back(static_cast<int64_t>(found[c].size()));
          plan_sizes.push_back(static_cast<int64_t>(plan[c].size()));
        }
        std::sort(rows_found.begin(), rows_found.end());
        Values all(static_cast<size_t>(rows));
        std::iota(all.begin(), all.end(), int64_t{0});
        EXPECT_EQ(rows_found, all);
        std::sort(sizes.begin(), sizes.end());
        std::sort(plan_sizes.begin(), plan_sizes.end());
        EXPECT_EQ(sizes, plan_sizes) << rows << " rows, micro " << micro << ", world " << world;
      }
}

TEST(Balance, RanksDifferByNoMoreThanMicroBatchesOfOneRoundDo) {
  for (const int64_t rows : {48, 64, 100}) {
    const std::vector<double> costs = random_costs(rows);
    DealOptions options{.micro_batch_rows = 2, .world = 4};
    const Spread balanced = spread_of(balance_step(costs, options), costs, options.world);
    const Spread plain = spread_of(in_order(rows, options), costs, options.world);
    EXPECT_LE(gap(balanced.ranks), balanced.round + 1e-9);
    EXPECT_LT(gap(balanced.ranks), gap(plain.ranks) / 3);
    EXPECT_LT(balanced.round, plain.round);
    options.goal = DealGoal::kEvenCosts;
    const Spread even = spread_of(balance_step(costs, options), costs, options.world);
    EXPECT_LT(gap(even.ranks), gap(plain.ranks) / 10);
    EXPECT_LT(even.round, balanced.round / 1.5);
  }
}

TEST(Balance, PaddedMicroBatchesHoldRowsOfLikeLength) {
  const std::vector<double> costs = random_costs(64);
  const DealOptions options{.micro_batch_rows = 4, .world = 2};
  const auto padded = [&](const Chunks& chunks) {
    double sum = 0;
    for (const Values& chunk : chunks) {
      double longest = 0;
      for (const int64_t index : chunk) longest = std::max(longest, costs[static_cast<size_t>(index)]);
      sum += longest * static_cast<double>(chunk.size());
    }
    return sum;
  };
  const double tokens = std::accumulate(costs.begin(), costs.end(), 0.0);
  EXPECT_LT(padded(balance_step(costs, options)), 1.2 * tokens);
  EXPECT_GT(padded(in_order(64, options)), 1.8 * tokens);
}

TEST(Balance, RanksWithoutRowsAreThoseWithTheMostToDo) {
  const Chunks chunks = balance_step(std::vector<double>{9, 2, 1}, {.micro_batch_rows = 1, .world = 2});
  EXPECT_EQ(chunks, (Chunks{{0}, {1}, {}, {2}}));
  EXPECT_EQ(balance_step(std::vector<double>{9, 2, 1}, {.world = 2, .goal = DealGoal::kEvenCosts}), chunks);
}

TEST(Balance, ARowCostsItsTokensAndItsAttention) {
  const auto texts = make_texts(Values{3, 5});
  EXPECT_EQ(row_cost(*texts, 1, {}), 5.0);
  EXPECT_EQ(row_cost(*texts, 1, {.attention = 0.5}), 5.0 + 12.5);
  EXPECT_THROW(row_cost(*texts, 1, {.attention = -1}), ConfigError);
  EXPECT_THROW(row_cost(*texts, 1, {.attention = std::numeric_limits<double>::infinity()}), ConfigError);
  const SubsetDataset subset(texts, {1});
  EXPECT_EQ(row_cost(subset, 0, {.attention = 1}), 30.0);
}

TEST(Balance, RefusesWhatCannotBeDealt) {
  EXPECT_THROW(balance_step(std::vector<double>{1}, {.micro_batch_rows = 0}), ConfigError);
  EXPECT_THROW(balance_step(std::vector<double>{1}, {.world = 0}), ConfigError);
  EXPECT_THROW(balance_step(std::vector<double>{1, std::nan("")}, {}), ConfigError);
  EXPECT_TRUE(balance_step({}, {}).empty());
}

}  // namespace
}  // namespace apus::data
