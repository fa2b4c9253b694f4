#include "apus/train/log_line.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace apus::train {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

LogLine training_line() {
  return {.step = 100,
          .max_steps = 3000,
          .loss = 1.23449,
          .learning_rate = 5e-5,
          .epoch = 0.0333,
          .grad_norm = 0.8124,
          .tokens_per_second = 1245.56,
          .ranks = 4,
          .memory_bytes = kGiB * 125 / 4,
          .elapsed_seconds = 150.0,
          .seconds_per_step = 1.5,
          .data_wait_ms = 12.3456,
          .comm_wait_ms = 0.5,
          .metrics = {{"rewards/chosen", 0.25}, {"rewards/accuracies", 0.75}}};
}

EvaluationLine evaluation_line() {
  return {.step = 20,
          .max_steps = 20,
          .epoch = 2.0,
          .loss = 0.5,
          .rows = 60,
          .seconds = 4.0,
          .metrics = {{"rewards/accuracies", 0.9}, {"logps/chosen", -31.25}}};
}

std::vector<std::string> keys_of(const nlohmann::ordered_json& record) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : record.items()) keys.push_back(key);
  return keys;
}

TEST(LogLine, TextHasTheFormatThatPeopleParse) {
  EXPECT_EQ(training_line().text(),
            "Step 100/3000, loss=1.2345, learning_rate=5.00e-05, epoch=0.03, grad_norm=0.812, "
            "tokens/s=1245.6, tokens/s/gpu=311.4, memory=31.25GiB");
}

TEST(LogLine, JsonHoldsTheKeysInTheirOrder) {
  const std::vector<std::string> wanted = {"loss",
                                           "grad_norm",
                                           "learning_rate",
                                           "rewards/chosen",
                                           "rewards/accuracies",
                                           "epoch",
                                           "global_step/max_steps",
                                           "elapsed_time",
                                           "remaining_time",
                                           "memory(GiB)",
                                           "train_speed(s/it)",
                                           "tokens_per_second",
                                           "tokens_per_second_per_gpu",
                                           "data_wait_ms",
                                           "comm_wait_ms"};
  EXPECT_EQ(keys_of(training_line().json()), wanted);
}

TEST(LogLine, MfuIsShownWhereItIsKnown) {
  LogLine line = training_line();
  line.mfu = 0.4123;
  EXPECT_NE(line.text().find(", tokens/s/gpu=311.4, mfu=41.2%, memory="), std::string::npos) << line.text();
  EXPECT_NEAR(line.json().at("mfu").get<double>(), 41.23, 1e-9);
  EXPECT_FALSE(training_line().json().contains("mfu"));
}

TEST(LogLine, JsonKeepsTrainingNumbersWholeAndRoundsMeasurements) {
  const nlohmann::ordered_json record = training_line().json();
  EXPECT_EQ(record["loss"].get<double>(), 1.23449);
  EXPECT_EQ(record["grad_norm"].get<double>(), 0.8124);
  EXPECT_EQ(record["learning_rate"].get<double>(), 5e-5);
  EXPECT_EQ(record["rewards/accuracies"].get<double>(), 0.75);
  EXPECT_EQ(record["global_step/max_steps"], "100/3000");
  EXPECT_NEAR(record["memory(GiB)"].get<double>(), 31.25, 1e-9);
  EXPECT_NEAR(record["train_speed(s/it)"].get<double>(), 1.5, 1e-9);
  EXPECT_NEAR(record["tokens_per_second"].get<double>(), 1245.6, 1e-9);
  EXPECT_NEAR(record["tokens_per_second_per_gpu"].get<double>(), 311.4, 1e-9);
  EXPECT_NEAR(record["data_wait_ms"].get<double>(), 12.346, 1e-9);
  EXPECT_NEAR(record["comm_wait_ms"].get<double>(), 0.5, 1e-9);
}

TEST(LogLine, RemainingTimeIsThatOfTheStepsLeft) {
  const nlohmann::ordered_json record = training_line().json();
  EXPECT_EQ(record["elapsed_time"], "2m 30s");
  EXPECT_EQ(record["remaining_time"], "1h 12m 30s");  // 2,900 steps of 1.5 s
  LogLine last = training_line();
  last.step = last.max_steps;
  EXPECT_EQ(last.json()["remaining_time"], "0s");
}

TEST(EvaluationLine, JsonPutsThePrefixOnLossAndMetrics) {
  const std::vector<std::string> wanted = {
      "eval_loss", "eval_rewards/accuracies", "eval_logps/chosen", "eval_runtime", "eval_samples_per_second",
      "epoch",     "global_step/max_steps"};
  const nlohmann::ordered_json record = evaluation_line().json();
  EXPECT_EQ(keys_of(record), wanted);
  EXPECT_EQ(record["eval_loss"].get<double>(), 0.5);
  EXPECT_EQ(record["eval_rewards/accuracies"].get<double>(), 0.9);
  EXPECT_NEAR(record["eval_samples_per_second"].get<double>(), 15.0, 1e-9);
  EXPECT_EQ(record["global_step/max_steps"], "20/20");
}

TEST(EvaluationLine, TextNamesRowsAndMetrics) {
  EXPECT_EQ(evaluation_line().text(),
            "Evaluation at step 20/20 over 60 rows, eval_loss=0.5000, eval_rewards/accuracies=0.9000, "
            "eval_logps/chosen=-31.2500, eval_runtime=4.0s");
}

TEST(EvaluationLine, TakingNoTimeGivesAFiniteRate) {
  EvaluationLine line = evaluation_line();
  line.seconds = 0.0;
  const double rate = line.json()["eval_samples_per_second"].get<double>();
  EXPECT_TRUE(std::isfinite(rate));
  EXPECT_GT(rate, 0.0);
}

TEST(DurationText, LeavesOutLeadingZeros) {
  EXPECT_EQ(duration_text(3.9), "3s");
  EXPECT_EQ(duration_text(60.0), "1m 0s");
  EXPECT_EQ(duration_text(123.0), "2m 3s");
  EXPECT_EQ(duration_text(3723.0), "1h 2m 3s");
  EXPECT_EQ(duration_text(3600.0), "1h 0m 0s");
  EXPECT_EQ(duration_text(90'061.0), "25h 1m 1s");
  EXPECT_EQ(duration_text(-5.0), "0s");
}

TEST(LogLine, ASkippedStepShowsNoNorm) {
  LogLine line = training_line();
  line.grad_norm = -std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(line.text().find("grad_norm"), std::string::npos) << line.text();
  EXPECT_FALSE(line.json().contains("grad_norm"));
}

}  // namespace
}  // namespace apus::train
