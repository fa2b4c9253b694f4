#include "apus/train/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/comm/fake_communicator.h"
#include "apus/data/packing.h"
#include "tests/support/tiny_training.h"
#include "tests/unit/train/support/sft_bench.h"

namespace apus::testing {
namespace {

class TrainerTest : public ::testing::Test {
 protected:
  train::Trainer trainer(train::TrainerOptions options) {
    context_.clock = &clock_;
    context_.logger = &logger_;
    return {engine_, objective_, std::move(options), context_};
  }

  TinyRun run_{.job = Job::kLoraDpo, .accumulation = 4, .rows = 10, .steps = 6};
  std::unique_ptr<comm::Communicator> dp_ = comm::make_fake_communicator({});
  std::unique_ptr<models::Qwen2> model_ = tiny_model(run_);
  parallel::ShardedModel engine_{*model_, *dp_, {}};
  std::shared_ptr<const train::Objective> objective_ = tiny_objective(run_.job);
  SystemClock clock_;
  NullLogger logger_;
  train::TrainerContext context_;
};

TEST_F(TrainerTest, CadencesFollowTheStepsAndTheEnd) {
  std::vector<std::string> events;
  context_.callbacks.on_log = [&](const std::string&, const nlohmann::ordered_json& record) {
    events.push_back((record.contains("eval_loss") ? "eval " : "log ") +
                     record.at("global_step/max_steps").get<std::string>());
  };
  context_.callbacks.on_save = [&](const train::TrainerState& state) {
    events.push_back("save " + std::to_string(state.global_step));
  };
  auto options = tiny_options(run_);
  options.max_steps = 5;
  options.logging_steps = 2;
  options.save_steps = 3;
  options.eval_steps = 4;
  trainer(options).run(tiny_rows(run_.job, 10), tiny_rows(run_.job, 3));
  EXPECT_EQ(events, (std::vector<std::string>{"log 2/5", "save 3", "log 4/5", "eval 4/5", "log 5/5",
                                              "eval 5/5", "save 5"}));
}

TEST(TrainerCallbacks, ComeInTheirOrder) {
  SftBench bench({.accumulation = 2, .steps = 2});
  bench.options.save_steps = 1;
  bench.options.eval_steps = 0;
  bench.context.callbacks.on_log = [&](const std::string&, const nlohmann::ordered_json& record) {
    bench.events.push_back(record.contains("eval_loss") ? "evaluation line" : "line");
  };
  const auto rows = tiny_rows(Job::kFullSft, 4);
  bench.trainer().run(rows, rows);
  EXPECT_EQ(bench.events, (std::vector<std::string>{"begin 0", "step 1", "line", "save 1", "step 2", "line",
                                                    "evaluation line", "evaluate 2", "save 2", "end 2"}));
}

TEST(TrainerCallbacks, OneMayEndTheRunWhichThenGoesOnWhereItStopped) {
  SftBench bench({.accumulation = 2, .steps = 6});
  bench.options.save_steps = 0;
  auto trainer = bench.trainer();
  int64_t steps = 0;
  SftBench asking({.accumulation = 2, .steps = 6});
  asking.options.save_steps = 0;
  train::Trainer* running = nullptr;
  asking.context.callbacks.on_step = [&](const train::StepReport& report) {
    asking.reports.push_back(report);
    if (++steps == 3) running->request_stop();
  };
  auto stopped = asking.trainer();
  running = &stopped;
  const auto rows = tiny_rows(Job::kFullSft, 12);
  const train::RunSummary summary = stopped.run(rows, nullptr);
  EXPECT_EQ(summary.steps, 3) << "no step after the one that asked";
  EXPECT_FALSE(summary.finished);
  EXPECT_FALSE(summary.stopped_early);
  EXPECT_EQ(asking.saved.global_step, 3);
  EXPECT_EQ(stopped.run(rows, nullptr, asking.saved).steps, 6) << "a request ends one run, not the next";
  trainer.run(rows, nullptr);
  ASSERT_EQ(asking.reports.size(), 6u);
  ASSERT_EQ(bench.reports.size(), 6u);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(asking.reports[i].loss, bench.reports[i].loss) << i;
}

TEST_F(TrainerTest, ACheckpointBeyondTheRunsStepsIsRefused) {
  auto options = tiny_options(run_);
  options.max_steps = 2;
  const auto rows = tiny_rows(run_.job, 8);
  EXPECT_THROW(trainer(options).run(rows, nullptr, {.global_step = 6}), ConfigError);
}

TEST_F(TrainerTest, EpochsGiveTheNumberOfSteps) {
  auto options = tiny_options(run_);
  options.max_steps = -1;
  options.num_train_epochs = 2;
  const auto summary = trainer(options).run(tiny_rows(run_.job, 10), nullptr);
  EXPECT_EQ(summary.steps, 2 * 3) << "ceil(10 rows / 4 a step) steps an epoch";
  EXPECT_TRUE(summary.finished);
}

TEST_F(TrainerTest, ALogLineIsTheMeanSinceTheLastOne) {
  std::vector<double> losses, logged;
  context_.callbacks.on_step = [&](const train::StepReport& report) { losses.push_back(report.loss); };
  context_.callbacks.on_log = [&](const std::string&, const nlohmann::ordered_json& record) {
    logged.push_back(record.at("loss"));
  };
  auto options = tiny_options(run_);
  options.logging_steps = 3;
  trainer(options).run(tiny_rows(run_.job, 10), nullptr);
  ASSERT_EQ(logged.size(), 2u);
  EXPECT_DOUBLE_EQ(logged[0], (losses[0] + losses[1] + losses[2]) / 3);
  EXPECT_DOUBLE_EQ(logged[1], (losses[3] + losses[4] + losses[5]) / 3);
}

TEST_F(TrainerTest, EvaluationDoesNotDependOnItsBatchSizeAndChangesNothing) {
  const auto before = copies(engine_.gather_masters());
  auto options = tiny_options(run_);
  const auto one = trainer(options).evaluate(*tiny_rows(run_.job, 7));
  options.eval_batch_rows = 3;
  const auto three = trainer(options).evaluate(*tiny_rows(run_.job, 7));
  EXPECT_EQ(one.rows, 7);
  EXPECT_NEAR(one.loss, three.loss, 1e-6);
  for (size_t metric = 0; metric < one.metrics.size(); ++metric)
    EXPECT_NEAR(one.metrics[metric], three.metrics[metric], 1e-4);
  const auto after = engine_.gather_masters();
  for (size_t index = 0; index < before.size(); ++index)
    EXPECT_TRUE(before[index].tensor.equal(after[index].tensor));
}

/// Remembers the rows of each micro-batch.
class RecordingObjective final : public train::Objective {
 public:
  explicit RecordingObjective(std::shared_ptr<const train::Objective> inner) : inner_(std::move(inner)) {}
  std::vector<int64_t> weights(const data::Batch& batch) const override { return inner_->weights(batch); }
  train::ObjectiveResult run(parallel::ShardedModel& model, const data::Batch& batch) const override {
    seen.push_back(batch.ordinals);
    return inner_->run(model, batch);
  }
  const std::vector<train::ObjectiveMetric>& metrics() const override { return inner_->metrics(); }

  mutable std::vector<std::vector<int64_t>> seen;

 private:
  std::shared_ptr<const train::Objective> inner_;
};

TEST_F(TrainerTest, BalancePutsRowsOfLikeCostTogetherTheCostliestFirst) {
  const auto rows = tiny_rows(run_.job, 10);
  const auto recorded = std::make_shared<RecordingObjective>(objective_);
  objective_ = recorded;
  auto options = tiny_options(run_);
  options.max_steps = 1;
  options.micro_batch_rows = 2;
  options.balance = data::CostModel{};
  trainer(options).run(rows, nullptr);
  ASSERT_EQ(recorded->seen.size(), 4u);
  for (size_t m = 1; m < 4; ++m) {
    const auto tokens = [&](int64_t ordinal) { return rows->tokens(ordinal); };
    EXPECT_GE(tokens(std::ranges::min(recorded->seen[m - 1], {}, tokens)),
              tokens(std::ranges::max(recorded->seen[m], {}, tokens)));
  }
}

TEST_F(TrainerTest, AnEvaluationOverPacksCountsAndWeighsRows) {
  const auto rows = tiny_rows(run_.job, 7);
  const data::PackedDataset packs(rows, {.packing_length = 60});
  ASSERT_LT(packs.size(), 7);
  const auto wanted = trainer(tiny_options(run_)).evaluate(*rows);
  const auto found = trainer(tiny_options(run_)).evaluate(packs);
  EXPECT_EQ(found.rows, 7);
  EXPECT_NEAR(found.loss, wanted.loss, 1e-6);
}

TEST_F(TrainerTest, StatesSurviveTheirJson) {
  train::TrainerState state{
      .global_step = 7, .max_steps = 9, .cursor = {2, 1}, .elapsed_seconds = 1.5, .tokens = 99};
  state.window = {.steps = 2, .loss = 0.1, .metrics = {0.25, 1.0 / 3.0}, .metric_steps = {2, 1}};
  state.best = train::BestEvaluation{.metric = "eval_loss", .value = 0.7, .step = 5, .without_progress = 1};
  const auto text = train::to_json(state).dump();
  const auto back = train::trainer_state_from_json(nlohmann::json::parse(text), "trainer_state.json");
  EXPECT_EQ(back.cursor, state.cursor);
  EXPECT_EQ(back.window.metrics, state.window.metrics);
  EXPECT_EQ(back.window.metric_steps, state.window.metric_steps);
  EXPECT_EQ(back.window.loss, state.window.loss);
  ASSERT_TRUE(back.best);
  EXPECT_EQ(back.best->metric, "eval_loss");
  EXPECT_EQ(back.best->value, 0.7);
  EXPECT_EQ(back.best->step, 5);
  EXPECT_EQ(back.best->without_progress, 1);
  EXPECT_EQ(back.tokens, 99);
  EXPECT_THROW(train::trainer_state_from_json(nlohmann::json::object(), "trainer_state.json"), DataError);
}

TEST_F(TrainerTest, BadCadencesAreRefused) {
  auto options = tiny_options(run_);
  options.logging_steps = 0;
  EXPECT_THROW(trainer(options), ConfigError);
  options = tiny_options(run_);
  options.eval_batch_rows = 0;
  EXPECT_THROW(trainer(options), ConfigError);
}

TEST_F(TrainerTest, DpoNeedsAPositiveBetaAndAnAdapter) {
  EXPECT_THROW(train::DpoObjective({.loss = {.beta = 0}}), ConfigError);
  EXPECT_THROW(train::DpoObjective({.policy_adapters = {}}), ConfigError);
}

TEST_F(TrainerTest, MicrobatchReductionWeighsMicroBatchesAlike) {
  const train::DpoObjective pairs({}), micro({.reduction = train::DpoReduction::kMicrobatch});
  const auto batch = tiny_rows(run_.job, 3)->collate(std::vector<int64_t>{0, 1, 2}, {});
  EXPECT_EQ(pairs.weights(batch), std::vector<int64_t>{3});
  EXPECT_EQ(micro.weights(batch), std::vector<int64_t>{1});
  const double sum = pairs.run(engine_, batch).loss_sums.at(0).item<double>();
  EXPECT_NEAR(micro.run(engine_, batch).loss_sums.at(0).item<double>(), sum / 3, 1e-6);
}

}  // namespace
}  // namespace apus::testing
