// Log lines of a run; the public face is apus/train/trainer.h.
#include <gtest/gtest.h>

#include "apus/train/sft_trainer.h"
#include "tests/unit/train/support/sft_bench.h"

namespace apus::testing {
namespace {

/// The tiny rows; those of step 1 (the first two) are code, one of the third step is web.
std::shared_ptr<const data::Dataset> rows_of_channels() {
  const auto plain = tiny_rows(Job::kFullSft, 6);
  const char* channels[] = {"code", "code", "", "", "", "web"};
  std::vector<data::SftRow> rows;
  for (int64_t i = 0; i < 6; ++i) {
    rows.push_back(dynamic_cast<const data::SftDataset&>(*plain).row(i));
    rows.back().channel = channels[i];
  }
  return std::make_shared<data::SftDataset>(std::move(rows));
}

train::StepReport report_of(double loss, std::vector<double> metrics, std::vector<int64_t> weights) {
  return {.loss = loss, .metrics = std::move(metrics), .metric_weights = std::move(weights)};
}

TEST(LogWindow, AStepThatCountsNothingInAMetricIsNotInItsMean) {
  train::LogWindow window;
  window.add(report_of(1.0, {0.5, 3.0}, {10, 4}));
  window.add(report_of(2.0, {0.25, std::numeric_limits<double>::quiet_NaN()}, {10, 0}));
  window.add(report_of(3.0, {0.25, 5.0}, {10, 1}));
  EXPECT_EQ(window.steps, 3);
  EXPECT_EQ(window.loss, 6.0);
  EXPECT_EQ(window.metrics, (std::vector<double>{1.0, 8.0}));
  EXPECT_EQ(window.metric_steps, (std::vector<int64_t>{3, 2}));
}

TEST(TrainerLines, ChannelsStandWhereTheirRowsWereTrained) {
  SftBench bench({.accumulation = 2, .steps = 3, .learning_rate = 1e-3});
  bench.options.shuffle = false;
  bench.options.logging_steps = 2;
  train::SftTrainer trainer(bench.engine, {.trainer = bench.options}, bench.context);
  const auto rows = rows_of_channels();
  trainer.run(rows, rows);
  ASSERT_EQ(bench.lines.size(), 3u) << "steps 2 and 3, and the evaluation";
  const nlohmann::ordered_json &first = bench.lines[0], &second = bench.lines[1],
                               &evaluation = bench.lines[2];
  EXPECT_TRUE(first.contains("token_acc"));
  EXPECT_FALSE(first.contains("loss_web"));
  EXPECT_NEAR(first.at("loss_code").get<double>(), bench.reports[0].loss, 1e-5)
      << "all of step 1, nothing of step 2";
  EXPECT_TRUE(second.contains("loss_web"));
  EXPECT_FALSE(second.contains("loss_code"));
  for (const char* key : {"eval_loss", "eval_token_acc", "eval_loss_code", "eval_loss_web"})
    EXPECT_TRUE(evaluation.contains(key)) << key;
}

TEST(TrainerLines, AResumedRunPrintsTheLinesOfOneThatWasNotStopped) {
  const auto rows = rows_of_channels();
  const auto options_of = [](SftBench& bench) {
    bench.options.shuffle = false;
    bench.options.logging_steps = 3;
    bench.options.save_steps = 2;
    bench.options.update.lr = 0.0;
    return train::SftTrainerOptions{.trainer = bench.options};
  };
  SftBench whole({.accumulation = 2, .steps = 3}), rest({.accumulation = 2, .steps = 3});
  train::TrainerState state;
  whole.context.callbacks.on_save = [&](const train::TrainerState& now) {
    if (now.global_step == 2)
      state = train::trainer_state_from_json(nlohmann::json::parse(train::to_json(now).dump()), "state");
  };
  train::SftTrainer(whole.engine, options_of(whole), whole.context).run(rows);
  train::SftTrainer(rest.engine, options_of(rest), rest.context).run(rows, nullptr, state);
  ASSERT_EQ(whole.lines.size(), 1u);
  ASSERT_EQ(rest.lines.size(), 1u);
  for (const char* key : {"loss", "token_acc", "loss_code", "loss_web"})
    EXPECT_EQ(rest.lines[0].at(key), whole.lines[0].at(key)) << key;
}

TEST(TrainerLines, MfuStandsWhereTheDeviceIsKnown) {
  SftBench bench({.accumulation = 2, .steps = 1});
  bench.trainer().run(tiny_rows(Job::kFullSft, 2), nullptr);
  EXPECT_FALSE(bench.lines.at(0).contains("mfu"));
  bench.options.flops = {.per_token = 1e6, .device_peak = 1e9};
  bench.trainer().run(tiny_rows(Job::kFullSft, 2), nullptr);
  const nlohmann::ordered_json& line = bench.lines.at(1);
  EXPECT_NEAR(line.at("mfu").get<double>(),
              line.at("tokens_per_second_per_gpu").get<double>() * 1e6 / 1e9 * 100, 0.1);
}

}  // namespace
}  // namespace apus::testing
