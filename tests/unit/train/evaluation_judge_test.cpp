#include "train/evaluation_judge.h"

#include <gtest/gtest.h>

#include <limits>

#include "apus/base/error.h"

namespace apus::train {
namespace {

const std::vector<ObjectiveMetric>& metrics() {
  static const std::vector<ObjectiveMetric> kMetrics = {{"token_acc"}, {"loss_code", 1}, {"rewards/margins"}};
  return kMetrics;
}

EvaluationReport report(double loss, double accuracy = 0.0, double code = 0.0, int64_t code_weight = 5) {
  return {.loss = loss, .metrics = {accuracy, code, 0.0}, .metric_weights = {9, code_weight, 9}};
}

/// Steps of the best after each loss.
std::vector<int64_t> best_steps(const EvaluationJudge& judge, const std::vector<EvaluationReport>& reports) {
  std::vector<int64_t> steps;
  std::optional<BestEvaluation> best;
  for (size_t i = 0; i < reports.size(); ++i) {
    judge.judge(reports[i], static_cast<int64_t>(i) + 1, best);
    steps.push_back(best ? best->step : 0);
  }
  return steps;
}

TEST(EvaluationJudge, LossesAreBetterWhenSmallerOthersWhenLarger) {
  const std::vector<EvaluationReport> reports = {report(3, 0.1, 5), report(2, 0.3, 4), report(4, 0.2, 9)};
  EXPECT_EQ(best_steps({{}, metrics()}, reports), (std::vector<int64_t>{1, 2, 2}));
  EXPECT_EQ(best_steps({{.metric_for_best_model = "eval_token_acc"}, metrics()}, reports),
            (std::vector<int64_t>{1, 2, 2}));
  EXPECT_EQ(best_steps({{.metric_for_best_model = "eval_loss_code"}, metrics()}, reports),
            (std::vector<int64_t>{1, 2, 2}));
  EXPECT_EQ(best_steps({{.greater_is_better = true}, metrics()}, reports), (std::vector<int64_t>{1, 1, 3}));
  EXPECT_EQ(
      best_steps({{.metric_for_best_model = "token_acc", .greater_is_better = false}, metrics()}, reports),
      (std::vector<int64_t>{1, 1, 1}));
}

TEST(EvaluationJudge, ThePrefixMayBeLeftOut) {
  EXPECT_EQ(EvaluationJudge({.metric_for_best_model = "loss"}, metrics()).metric(), "eval_loss");
  EXPECT_EQ(EvaluationJudge({.metric_for_best_model = "rewards/margins"}, metrics()).metric(),
            "eval_rewards/margins");
}

TEST(EvaluationJudge, AnUnknownFigureIsAnErrorThatListsThoseThereAre) {
  try {
    EvaluationJudge({.metric_for_best_model = "eval_bleu"}, metrics());
    FAIL() << "did not throw";
  } catch (const ConfigError& error) {
    EXPECT_NE(
        std::string(error.what()).find("eval_loss, eval_token_acc, eval_loss_code, eval_rewards/margins"),
        std::string::npos)
        << error.what();
  }
}

TEST(EvaluationJudge, GivesUpAfterSoManyEvaluationsWithoutProgress) {
  const EvaluationJudge judge({.early_stopping = {.patience = 2, .threshold = 0.1}}, metrics());
  std::optional<BestEvaluation> best;
  const auto gives_up_after = [&](double loss, int64_t step) {
    judge.judge(report(loss), step, best);
    return judge.gives_up(best);
  };
  EXPECT_FALSE(gives_up_after(3.0, 1));
  EXPECT_FALSE(gives_up_after(2.95, 2))
      << "better, but by less than the threshold: the first without progress";
  EXPECT_EQ(best->step, 2) << "yet it is the best";
  EXPECT_FALSE(gives_up_after(2.5, 3)) << "progress starts the count again";
  EXPECT_FALSE(gives_up_after(2.6, 4));
  EXPECT_TRUE(gives_up_after(2.5, 5));
  EXPECT_EQ(best->step, 3);
  EXPECT_FALSE(EvaluationJudge({}, metrics()).gives_up(best)) << "patience 0: never";
}

TEST(EvaluationJudge, WhatIsNoNumberIsNeverTheBest) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(best_steps({{}, metrics()}, {report(nan), report(2), report(nan), report(-inf), report(1)}),
            (std::vector<int64_t>{0, 2, 2, 2, 5}));
}

TEST(EvaluationJudge, AnotherFigureStartsAnew) {
  std::optional<BestEvaluation> best = BestEvaluation{.metric = "eval_loss", .value = 0.1, .step = 3};
  EXPECT_TRUE(
      EvaluationJudge({.metric_for_best_model = "token_acc"}, metrics()).judge(report(9, 0.01), 7, best));
  EXPECT_EQ(best->metric, "eval_token_acc");
  EXPECT_EQ(best->step, 7);
}

TEST(EvaluationJudge, AFigureThatNoRowCountsInCannotJudge) {
  std::optional<BestEvaluation> best;
  const EvaluationJudge judge({.metric_for_best_model = "loss_code"}, metrics());
  EXPECT_THROW(judge.judge(report(1, 1, 0, 0), 1, best), ConfigError);
}

TEST(EvaluationJudge, RefusesSettingsOutOfRange) {
  EXPECT_THROW(EvaluationJudge({.early_stopping = {.patience = -1}}, metrics()), ConfigError);
  EXPECT_THROW(EvaluationJudge({.early_stopping = {.threshold = -0.1}}, metrics()), ConfigError);
}

}  // namespace
}  // namespace apus::train
