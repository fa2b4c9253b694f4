#include "apus/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "apus/base/error.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

std::vector<int64_t> file_order(int64_t rows) {
  std::vector<int64_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

TEST(Sampler, OrderIsAPermutationThatDependsOnSeedAndEpoch) {
  const Sampler sampler({.rows = 1000, .seed = 42});
  std::vector<int64_t> order = sampler.order(0);
  EXPECT_EQ(order, Sampler({.rows = 1000, .seed = 42}).order(0));
  EXPECT_NE(order, sampler.order(1));
  EXPECT_NE(order, Sampler({.rows = 1000, .seed = 43}).order(0));
  EXPECT_NE(order, file_order(1000));
  std::sort(order.begin(), order.end());
  EXPECT_EQ(order, file_order(1000));
}

TEST(Sampler, OrderStaysTheSameAcrossVersions) {
  // A change here changes what a resumed run trains on.
  EXPECT_EQ(Sampler({.rows = 10, .seed = 42}).order(0), (std::vector<int64_t>{9, 8, 1, 2, 6, 7, 0, 5, 4, 3}));
  EXPECT_EQ(Sampler({.rows = 10, .seed = 42}).order(1), (std::vector<int64_t>{0, 1, 5, 6, 8, 2, 9, 3, 7, 4}));
}

TEST(Sampler, ShufflesEvenly) {
  std::vector<int> first(5, 0);
  for (int64_t epoch = 0; epoch < 5000; ++epoch)
    ++first[static_cast<size_t>(Sampler({.rows = 5}).order(epoch)[0])];
  // 1000 expected each, standard deviation 28
  for (const int count : first) EXPECT_NEAR(count, 1000, 150);
}

TEST(Sampler, KeepsFileOrderWithoutShuffling) {
  const Sampler sampler({.rows = 6, .shuffle = false});
  EXPECT_EQ(sampler.order(0), file_order(6));
  EXPECT_EQ(sampler.order(3), file_order(6));
  EXPECT_TRUE(Sampler({.rows = 0}).order(0).empty());
  EXPECT_THROW(Sampler({.rows = -1}), ConfigError);
}

TEST(StepPlan, CountsStepsUpwards) {
  const auto steps = [](StepPlanOptions options) { return StepPlan(options).steps_per_epoch(); };
  EXPECT_EQ(steps({.rows = 24, .micro_batch_rows = 2, .world = 3, .accumulation = 4}), 1);
  EXPECT_EQ(steps({.rows = 25, .micro_batch_rows = 2, .world = 3, .accumulation = 4}), 2);
  EXPECT_EQ(steps({.rows = 1, .micro_batch_rows = 8, .world = 4, .accumulation = 4}), 1);
  const StepPlan plan({.rows = 25, .accumulation = 4});
  EXPECT_EQ(plan.total_steps(3), 21);
  EXPECT_EQ(plan.total_steps(0.5), 4);
}

TEST(StepPlan, RefusesEpochsBeyondWhatCanBeCounted) {
  const StepPlan plan({.rows = 100});
  for (const double epochs : {1e300, -1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    try {
      const int64_t steps = plan.total_steps(epochs);
      ADD_FAILURE() << epochs << " epochs gave " << steps << " steps";
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()).find("--num_train_epochs "), 0u) << error.what();
    }
  }
}

TEST(StepPlan, EveryRowIsInExactlyOneMicroBatch) {
  for (int64_t world = 1; world <= 4; ++world) {
    const StepPlan plan({.rows = 53, .micro_batch_rows = 2, .world = world, .accumulation = 3});
    std::vector<int> seen(53, 0);
    for (int64_t step = 0; step < plan.steps_per_epoch(); ++step)
      for (int64_t m = 0; m < plan.micro_batches(step); ++m)
        for (int64_t rank = 0; rank < world; ++rank) {
          const OrderRange range = plan.micro_batch_range(step, m, rank);
          EXPECT_LE(range.count, 2);
          for (int64_t i = 0; i < range.count; ++i) ++seen[static_cast<size_t>(range.first + i)];
        }
    EXPECT_EQ(seen, std::vector<int>(53, 1)) << "world " << world;
  }
}

TEST(StepPlan, AStepTakesTheSameRowsInEveryWorld) {
  const StepPlan one({.rows = 30, .world = 1, .accumulation = 12});
  for (const auto& [world, accumulation] : {std::pair<int64_t, int64_t>{2, 6}, {3, 4}, {4, 3}, {12, 1}}) {
    const StepPlan plan({.rows = 30, .world = world, .accumulation = accumulation});
    ASSERT_EQ(plan.steps_per_epoch(), one.steps_per_epoch());
    for (int64_t step = 0; step < 3; ++step) EXPECT_EQ(plan.step_range(step), one.step_range(step));
  }
}

TEST(StepPlan, DealsChunksOutRoundByRound) {
  const StepPlan plan({.rows = 11, .micro_batch_rows = 2, .world = 2, .accumulation = 2});
  EXPECT_EQ(plan.micro_batch_range(0, 0, 0), (OrderRange{0, 2}));
  EXPECT_EQ(plan.micro_batch_range(0, 0, 1), (OrderRange{2, 2}));
  EXPECT_EQ(plan.micro_batch_range(0, 1, 0), (OrderRange{4, 2}));
  EXPECT_EQ(plan.micro_batch_range(0, 1, 1), (OrderRange{6, 2}));
  EXPECT_EQ(plan.micro_batches(1), 1);
  EXPECT_EQ(plan.micro_batch_range(1, 0, 0), (OrderRange{8, 2}));
  EXPECT_EQ(plan.micro_batch_range(1, 0, 1), (OrderRange{10, 1}));
}

TEST(StepPlan, UnevenRowsGiveEmptyMicroBatchesInsteadOfFewerOnes_Pitfall42) {
  const StepPlan plan({.rows = 5, .world = 4, .accumulation = 2});
  EXPECT_EQ(plan.micro_batches(0), 2);
  EXPECT_EQ(plan.micro_batch_range(0, 1, 0), (OrderRange{4, 1}));
  for (int64_t rank = 1; rank < 4; ++rank) EXPECT_EQ(plan.micro_batch_range(0, 1, rank).count, 0);
}

TEST(StepPlan, DropLastLeavesOutIncompleteSetsAsTransformersDoes) {
  // transformers: floor(rows / (micro x world)) batches a rank, ceil(that / accumulation) steps
  for (int64_t rows = 6; rows < 40; ++rows) {
    const StepPlan plan(
        {.rows = rows, .micro_batch_rows = 2, .world = 3, .accumulation = 2, .drop_last = true});
    const int64_t batches = rows / 6;
    EXPECT_EQ(plan.steps_per_epoch(), (batches + 1) / 2);
    int64_t used = 0;
    for (int64_t step = 0; step < plan.steps_per_epoch(); ++step) used += plan.step_range(step).count;
    EXPECT_EQ(used, batches * 6);
  }
}

TEST(StepPlan, RefusesWhatGivesNoStepWithTheArithmetic) {
  const auto message = message_of<ConfigError>(
      [] { StepPlan({.rows = 5, .micro_batch_rows = 2, .world = 3, .drop_last = true}); });
  EXPECT_NE(message.find("5 rows are fewer than micro-batch 2 x world 3 = 6"), std::string::npos) << message;
  EXPECT_THROW(StepPlan({.rows = 0}), ConfigError);
  EXPECT_THROW(StepPlan({.rows = 1, .micro_batch_rows = 0}), ConfigError);
  EXPECT_THROW(StepPlan({.rows = 1, .world = -1}), ConfigError);
  EXPECT_THROW(StepPlan({.rows = 1, .accumulation = 0}), ConfigError);
  EXPECT_THROW(StepPlan({.rows = 1, .micro_batch_rows = 1'000'000'000, .accumulation = 1'000'000'000}),
               ConfigError);
}

TEST(StepPlan, RefusesPlacesOutsideTheEpoch) {
  const StepPlan plan({.rows = 4, .world = 2});
  EXPECT_THROW(plan.step_range(2), ConfigError);
  EXPECT_THROW(plan.step_range(-1), ConfigError);
  EXPECT_THROW(plan.micro_batch_range(0, 1, 0), ConfigError);
  EXPECT_THROW(plan.micro_batch_range(0, 0, 2), ConfigError);
}

}  // namespace
}  // namespace apus::data
