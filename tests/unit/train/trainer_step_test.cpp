// One optimizer step; the public face is apus/train/trainer.h.
#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "tests/unit/train/support/sft_bench.h"

namespace apus::testing {
namespace {

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "did not throw";
  return {};
}

TEST(TrainerStep, ALossThatIsNoNumberHarmsNeitherWeightsNorCheckpoints_Pitfall49) {
  SftBench bench({.accumulation = 4, .steps = 5});
  bench.options.shuffle = false;
  bench.options.save_steps = 1;
  const auto rows = rows_with_infinity(12, 6);
  std::vector<nn::NamedParameter> before;
  bench.context.callbacks.on_step = [&](const train::StepReport&) {
    before = copies(bench.engine.gather_masters());
  };
  auto trainer = bench.trainer();
  const std::string message = error_of([&] { trainer.run(rows, nullptr); });
  EXPECT_NE(message.find("step 2: the loss is"), std::string::npos) << message;
  EXPECT_NE(message.find("from train.jsonl:16: "), std::string::npos) << "names the row: " << message;
  EXPECT_NE(message.find("--learning_rate"), std::string::npos) << message;
  EXPECT_EQ(bench.saved.global_step, 1) << "nothing is saved after it";
  const auto after = bench.engine.gather_masters();
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < after.size(); ++i)
    EXPECT_TRUE(after[i].tensor.equal(before[i].tensor)) << after[i].name;
  EXPECT_EQ(bench.engine.updates(), 1);
}

TEST(TrainerStep, RowsOfNoFileAreNamedByTheirNumberAndManyAreCounted) {
  SftBench bench({.accumulation = 1, .steps = 1});
  std::vector<data::SftRow> rows;
  for (int64_t i = 0; i < 10; ++i)
    rows.push_back({.input_ids = {1, 2, 3}, .labels = {1, 2, 3}, .weights = {0, 1e38F * (i + 1), 3e38F}});
  rows[0].weights[1] = std::numeric_limits<float>::infinity();
  const data::SftDataset dataset(std::move(rows));
  std::vector<int64_t> all;
  for (int64_t i = 0; i < 10; ++i) all.push_back(i);
  auto trainer = bench.trainer();
  const std::string message = error_of([&] { trainer.step({dataset.collate(all, {})}, 1e-3); });
  EXPECT_EQ(message.find("-nan"), std::string::npos) << message;
  EXPECT_NE(message.find("row 0, row 1, row 2, row 3, row 4, row 5, row 6, row 7 and 2 more"),
            std::string::npos)
      << message;
}

TEST(TrainerStep, StepsAheadReportTheStepBefore) {
  const auto rows = tiny_rows(Job::kFullSft, 9);
  const auto batches = [&](int64_t first) {
    return std::vector<data::Batch>{rows->collate(std::vector<int64_t>{first, first + 1}, {}),
                                    rows->collate(std::vector<int64_t>{first + 2}, {})};
  };
  SftBench plain({}), ahead({});
  auto wanted = plain.trainer(), found = ahead.trainer();
  EXPECT_FALSE(found.settle().has_value());
  train::StepReport before;
  for (int64_t step = 0; step < 3; ++step) {
    const auto late = found.step_ahead(batches(3 * step), 1e-3);
    ASSERT_EQ(late.has_value(), step > 0);
    EXPECT_EQ(late ? late->loss : before.loss, before.loss);
    before = wanted.step(batches(3 * step), 1e-3);
  }
  const auto last = found.settle();
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->step, 3);
  EXPECT_EQ(last->loss, before.loss);
  EXPECT_EQ(last->grad_norm, before.grad_norm);
  EXPECT_FALSE(found.settle().has_value());
}

/// A loss of 0 whose gradient is no number.
class WrongGradient final : public train::Objective {
 public:
  std::vector<int64_t> weights(const data::Batch&) const override { return {1}; }
  train::ObjectiveResult run(parallel::ShardedModel& model, const data::Batch& batch) const override {
    const at::Tensor log_probs_M = train::target_log_probs(model, batch, {});
    return {.loss_sums = {log_probs_M.sub(log_probs_M).sqrt().sum()}};
  }
  const std::vector<train::ObjectiveMetric>& metrics() const override { return metrics_; }

 private:
  std::vector<train::ObjectiveMetric> metrics_;
};

TEST(TrainerStep, AGradientThatIsNoNumberLeavesTheWeights_Pitfall49) {
  SftBench bench({.accumulation = 1, .steps = 1});
  const auto before = copies(bench.engine.gather_masters());
  auto trainer = bench.trainer();
  trainer.set_objective(std::make_shared<WrongGradient>());
  const auto rows = tiny_rows(Job::kFullSft, 1);
  const std::string message =
      error_of([&] { trainer.step({rows->collate(std::vector<int64_t>{0}, {})}, 1e-3); });
  EXPECT_NE(message.find("step 1: the loss is 0, but the gradient norm nan: "), std::string::npos) << message;
  const auto after = bench.engine.gather_masters();
  for (size_t i = 0; i < after.size(); ++i)
    EXPECT_TRUE(after[i].tensor.equal(before[i].tensor)) << after[i].name;
}

TEST(TrainerStep, ReportsWhatEachMetricWasDividedBy) {
  SftBench bench({.accumulation = 2, .steps = 1});
  const auto rows = tiny_rows(Job::kFullSft, 2);
  auto trainer = bench.trainer();
  trainer.set_objective(
      std::make_shared<train::SftObjective>(train::SftObjectiveOptions{.channels = {"absent"}}));
  const auto batch = [&](int64_t row) { return rows->collate(std::vector<int64_t>{row}, {}); };
  const train::StepReport report = trainer.step({batch(0), batch(1)}, 0.0);
  ASSERT_EQ(report.metric_weights.size(), 2u);
  EXPECT_EQ(report.metric_weights[0], batch(0).target_count() + batch(1).target_count());
  EXPECT_EQ(report.metric_weights[1], 0) << "no row of the channel";
  EXPECT_THROW(trainer.set_objective(nullptr), ConfigError);
}

}  // namespace
}  // namespace apus::testing
