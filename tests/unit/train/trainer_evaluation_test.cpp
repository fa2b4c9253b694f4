// What follows from evaluations; the public face is apus/train/trainer.h.
#include <gtest/gtest.h>

#include <algorithm>

#include "apus/base/error.h"
#include "tests/unit/train/support/sft_bench.h"

namespace apus::testing {
namespace {

using Events = std::vector<std::string>;

TEST(TrainerEvaluation, EndsEarlyWhereNothingGetsBetterAndDoesNotGoOn) {
  // Weights that stand still: no evaluation after the first is better.
  SftBench bench({.accumulation = 2, .steps = 8, .learning_rate = 0.0});
  bench.options.eval_steps = 1;
  bench.options.save_steps = 0;
  bench.options.early_stopping.patience = 2;
  const auto rows = tiny_rows(Job::kFullSft, 8), held_out = tiny_rows(Job::kFullSft, 3);
  auto trainer = bench.trainer();
  const train::RunSummary summary = trainer.run(rows, held_out);
  EXPECT_EQ(summary.steps, 3) << "the first evaluation, and two that are no better";
  EXPECT_TRUE(summary.finished);
  EXPECT_TRUE(summary.stopped_early);
  ASSERT_TRUE(summary.best);
  EXPECT_EQ(summary.best->step, 1);
  EXPECT_EQ(bench.events.back(), "end 3");
  EXPECT_EQ(bench.events[bench.events.size() - 2], "save 3");
  EXPECT_TRUE(
      bench.logger.contains("Stopping early: eval_loss has made no progress in the last 2 evaluations"));

  const auto text = train::to_json(bench.saved).dump();
  const auto state = train::trainer_state_from_json(nlohmann::json::parse(text), "trainer_state.json");
  const train::RunSummary again = trainer.run(rows, held_out, state);
  EXPECT_EQ(again.steps, 3) << "resumed, it has already given up";
  EXPECT_TRUE(again.stopped_early);
}

TEST(TrainerEvaluation, TheBestIsKnownAndSavedWhateverTheCadence) {
  SftBench bench({.accumulation = 2, .steps = 4, .learning_rate = 3e-3});
  bench.options.eval_steps = 2;
  bench.options.save_steps = 0;
  bench.options.save_best = true;
  const auto rows = tiny_rows(Job::kFullSft, 8);
  std::vector<std::pair<double, std::optional<train::BestEvaluation>>> seen;
  bench.context.callbacks.on_evaluate = [&](const train::EvaluationReport& report,
                                            const train::TrainerState& state) {
    seen.emplace_back(report.loss, state.best);
  };
  const train::RunSummary summary = bench.trainer().run(rows, rows);
  ASSERT_EQ(seen.size(), 2u);
  ASSERT_LT(seen[1].first, seen[0].first) << "rows that are trained get better";
  EXPECT_EQ(seen[0].second->step, 2);
  EXPECT_EQ(seen[1].second->step, 4);
  EXPECT_EQ(summary.best->value, seen[1].first);
  EXPECT_EQ(std::count(bench.events.begin(), bench.events.end(), "save 2"), 1);
  EXPECT_EQ(std::count(bench.events.begin(), bench.events.end(), "save 4"), 1)
      << "once, though it is the last, too";
}

TEST(TrainerEvaluation, AnEvaluationBeforeTheFirstStepIsNoBest) {
  SftBench bench({.accumulation = 2, .steps = 1, .learning_rate = 0.0});
  bench.options.eval_on_start = true;
  const auto rows = tiny_rows(Job::kFullSft, 4);
  const train::RunSummary summary = bench.trainer().run(rows, rows);
  ASSERT_GE(bench.lines.size(), 2u);
  EXPECT_EQ(bench.lines[0].at("global_step/max_steps"), "0/1");
  EXPECT_TRUE(bench.lines[0].contains("eval_loss"));
  EXPECT_EQ(summary.best->step, 1);
  EXPECT_EQ(bench.events, (Events{"begin 0", "evaluate 0", "step 1", "evaluate 1", "save 1", "end 1"}));
}

TEST(TrainerEvaluation, EarlyStoppingWithoutRowsAndUnknownFiguresAreErrors) {
  SftBench bench({.accumulation = 2, .steps = 2});
  const auto rows = tiny_rows(Job::kFullSft, 4);
  bench.options.early_stopping.patience = 1;
  EXPECT_THROW(bench.trainer().run(rows, nullptr), ConfigError);
  bench.options.metric_for_best_model = "eval_bleu";
  EXPECT_THROW(bench.trainer().run(rows, rows), ConfigError);
  EXPECT_TRUE(bench.events.empty()) << "before the first step";
}

}  // namespace
}  // namespace apus::testing
