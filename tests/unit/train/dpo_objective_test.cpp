#include "apus/train/dpo_objective.h"

#include <gtest/gtest.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "apus/base/error.h"
#include "apus/comm/fake_communicator.h"
#include "apus/train/answer_log_probs.h"
#include "tests/support/rank_threads.h"
#include "tests/support/tiny_training.h"

namespace apus::train {
namespace {

using testing::Job;
using testing::tiny_rows;
using Type = PreferenceLossType;

/// An adapter that has left its start: log-ratios are not 0.
struct Bench {
  explicit Bench(comm::Communicator* group = nullptr) : own(comm::make_fake_communicator({})) {
    for (const nn::NamedParameter& parameter : peft::adapter_parameters(*model, "default"))
      if (parameter.name.find("lora_B") != std::string::npos) parameter.tensor.detach().fill_(0.05);
    engine = std::make_unique<parallel::ShardedModel>(*model, group ? *group : *own,
                                                      parallel::ShardedModelOptions{});
  }

  data::Batch batch(const std::vector<int64_t>& ordinals) const { return rows->collate(ordinals, {}); }

  testing::TinyRun run{.job = Job::kLoraDpo};
  std::shared_ptr<const data::Dataset> rows = tiny_rows(Job::kLoraDpo, 6);
  std::unique_ptr<models::Qwen2> model = testing::tiny_model(run);
  std::unique_ptr<comm::Communicator> own;
  std::unique_ptr<parallel::ShardedModel> engine;
};

/// Loss and metrics of a step made of these micro-batches, as the trainer puts them together.
struct StepSums {
  double loss = 0.0;
  std::vector<double> metrics;
};

StepSums step_of(Bench& bench, const DpoObjective& objective,
                 const std::vector<std::vector<int64_t>>& micro_batches) {
  std::vector<double> divisors(objective.weights({}).size(), 0.0);
  for (const auto& ordinals : micro_batches) {
    const auto weights = objective.weights(bench.batch(ordinals));
    for (size_t d = 0; d < divisors.size(); ++d) divisors[d] += static_cast<double>(weights.at(d));
  }
  StepSums step{.metrics = std::vector<double>(objective.metrics().size(), 0.0)};
  for (const auto& ordinals : micro_batches) {
    const ObjectiveResult result = objective.run(*bench.engine, bench.batch(ordinals));
    for (size_t d = 0; d < result.loss_sums.size(); ++d)
      if (result.loss_sums[d].defined()) step.loss += result.loss_sums[d].item<double>() / divisors.at(d);
    for (size_t m = 0; result.metric_sums.defined() && m < step.metrics.size(); ++m)
      step.metrics[m] += result.metric_sums[static_cast<int64_t>(m)].item<double>() /
                         divisors.at(objective.metrics()[m].divisor);
  }
  return step;
}

double metric(const DpoObjective& objective, const StepSums& step, const std::string& name) {
  const auto& metrics = objective.metrics();
  const auto found = std::ranges::find(metrics, name, &ObjectiveMetric::name);
  return found == metrics.end() ? NAN : step.metrics.at(static_cast<size_t>(found - metrics.begin()));
}

TEST(DpoObjective, SftAndRpoDivideByTheWholeStepsChosenTokens) {
  Bench bench;
  for (const DpoOptions& options :
       {DpoOptions{.loss = {.terms = {{Type::kSigmoid, 0.5}, {Type::kSft, 2.0}}}},
        DpoOptions{.loss = {.rpo_alpha = 0.7}}, DpoOptions{.loss = {.terms = {{Type::kSft}}}}}) {
    const DpoObjective objective(options);
    const StepSums whole = step_of(bench, objective, {{0, 1, 2, 3, 4, 5}});
    const StepSums split = step_of(bench, objective, {{0}, {1, 2, 3}, {}, {4, 5}});
    EXPECT_NEAR(split.loss, whole.loss, 1e-5 * std::abs(whole.loss));
    EXPECT_NEAR(metric(objective, split, "nll_loss"), metric(objective, whole, "nll_loss"), 1e-5);
  }
}

TEST(DpoObjective, NllIsTheMeanOverChosenTokens) {
  Bench bench;
  const DpoObjective objective({.loss = {.terms = {{Type::kSft}}}});
  const data::Batch batch = bench.batch({0, 1, 2});
  const auto answers = answer_log_probs(*bench.engine, batch, {.adapters = {"default"}});
  const double wanted = -answers.plain.slice(0, 0, 3).sum().item<double>() /
                        answer_tokens(batch).slice(0, 0, 3).sum().item<double>();
  const StepSums step = step_of(bench, objective, {{0, 1, 2}});
  EXPECT_NEAR(step.loss, wanted, 1e-5);
  EXPECT_NEAR(metric(objective, step, "nll_loss"), wanted, 1e-5);
}

TEST(DpoObjective, EveryLossBySumsOverPairsIsIndependentOfTheSplit) {
  Bench bench;
  for (const Type type : {Type::kSigmoid, Type::kHinge, Type::kIpo, Type::kExoPair, Type::kNcaPair,
                          Type::kRobust, Type::kBcoPair, Type::kSppoHard, Type::kApoZero, Type::kApoDown,
                          Type::kDiscopop, Type::kSigmoidNorm}) {
    const DpoObjective objective(
        {.loss = {.terms = {{type}}, .label_smoothing = type == Type::kExoPair ? 0.1 : 0.0}});
    const StepSums whole = step_of(bench, objective, {{0, 1, 2, 3, 4, 5}});
    const StepSums split = step_of(bench, objective, {{5}, {0, 3, 1}, {2, 4}});
    EXPECT_NEAR(split.loss, whole.loss, 1e-5 * std::abs(whole.loss))
        << loss_name(type, LossVariant::kCurrent);
  }
}

TEST(DpoObjective, MicrobatchReductionIsTheMeanOfMicroBatchMeans) {
  Bench bench;
  const PreferenceLossOptions loss{.terms = {{Type::kSigmoid}, {Type::kSft, 0.5}}};
  const DpoObjective objective({.loss = loss, .reduction = DpoReduction::kMicrobatch});
  const StepSums step = step_of(bench, objective, {{0, 1, 2, 3}, {4}});
  const StepSums first = step_of(bench, objective, {{0, 1, 2, 3}}), second = step_of(bench, objective, {{4}});
  EXPECT_NEAR(step.loss, (first.loss + second.loss) / 2, 1e-6);
  const DpoObjective by_pairs({.loss = loss});
  EXPECT_NEAR(second.loss, step_of(bench, by_pairs, {{4}}).loss, 1e-6) << "one micro-batch: the same";
  EXPECT_NEAR(metric(objective, step, "nll_loss"),
              (metric(objective, first, "nll_loss") + metric(objective, second, "nll_loss")) / 2, 1e-6);
}

TEST(DpoObjective, SortingLossesWorkUnderBothReductions) {
  Bench bench;
  const PreferenceLossOptions loss{.terms = {{Type::kAot}}};
  const double pairs = step_of(bench, DpoObjective({.loss = loss}), {{0, 1, 2}}).loss;
  const double micro =
      step_of(bench, DpoObjective({.loss = loss, .reduction = DpoReduction::kMicrobatch}), {{0, 1, 2}}).loss;
  EXPECT_NEAR(pairs, micro, 1e-6);
  EXPECT_GT(pairs, 0);
}

TEST(DpoObjective, LdAlphaWeighsPolicyAndReference) {
  Bench bench;
  const data::Batch batch = bench.batch({0, 1, 2});
  const at::Tensor weights = length_weights(batch, 0.3);
  const auto policy =
      answer_log_probs(*bench.engine, batch, {.adapters = {"default"}, .token_weights_M = weights});
  const auto reference = answer_log_probs(*bench.engine, batch, {.token_weights_M = weights});
  const at::Tensor rewards = policy.weighted.sub(reference.weighted).mul(0.1);
  const DpoObjective objective({.ld_alpha = 0.3});
  const StepSums step = step_of(bench, objective, {{0, 1, 2}});
  EXPECT_NEAR(metric(objective, step, "rewards/chosen"), rewards.slice(0, 0, 3).mean().item<double>(), 1e-6);
  EXPECT_NEAR(metric(objective, step, "rewards/rejected"), rewards.slice(0, 3).mean().item<double>(), 1e-6);
  EXPECT_NE(step.loss, step_of(bench, DpoObjective({}), {{0, 1, 2}}).loss);
  EXPECT_NEAR(step_of(bench, DpoObjective({.ld_alpha = 1.0}), {{0, 1, 2}}).loss,
              step_of(bench, DpoObjective({}), {{0, 1, 2}}).loss, 1e-6);
}

TEST(DpoObjective, ReferenceFreeComparesWithZero) {
  Bench bench;
  const DpoObjective objective({.reference = Reference::none()});
  const StepSums step = step_of(bench, objective, {{0, 1}});
  EXPECT_NEAR(metric(objective, step, "rewards/chosen"), 0.1 * metric(objective, step, "logps/chosen"), 1e-5);
}

TEST(DpoObjective, MarginsOfTheRowsLowerTheLogits) {
  Bench bench;
  data::Batch batch = bench.batch({0});
  const DpoObjective objective({});
  const auto before = objective.run(*bench.engine, batch);
  const double margin = before.metric_sums[3].item<double>();
  batch.pair_margins_P = at::empty({1}, at::kFloat).fill_(2.0);
  EXPECT_NEAR(objective.run(*bench.engine, batch).loss_sums.at(0).item<double>(),
              std::log1p(std::exp(-(margin - 2.0))), 1e-5);
}

TEST(DpoObjective, TheRunningMeanIsThatOfEarlierStepsUnderPairs) {
  const DpoObjective objective({.loss = {.terms = {{Type::kBcoPair}}, .variant = LossVariant::kTrl024}});
  Bench bench;
  const double before = step_of(bench, objective, {{0, 1}}).loss;
  ASSERT_NE(objective.memory(), nullptr);
  objective.memory()->finish_step({2}, {0.5, -0.1, 0, 0, 0, 0});
  objective.memory()->finish_step({6}, {0.1, 0.1, 0, 0, 0, 0});
  EXPECT_NEAR(objective.memory()->save().at(0), (2 * 0.2 + 6 * 0.1) / 8, 1e-12);
  EXPECT_NE(step_of(bench, objective, {{0, 1}}).loss, before);
  EXPECT_NEAR(step_of(bench, objective, {{0}, {1}}).loss, step_of(bench, objective, {{0, 1}}).loss, 1e-6);
  const DpoObjective resumed({.loss = {.terms = {{Type::kBcoPair}}, .variant = LossVariant::kTrl024}});
  resumed.memory()->load(objective.memory()->save());
  EXPECT_EQ(step_of(bench, resumed, {{0, 1}}).loss, step_of(bench, objective, {{0, 1}}).loss);
  EXPECT_THROW(resumed.memory()->load({1.0}), ConfigError);
  EXPECT_EQ(DpoObjective({.loss = {.terms = {{Type::kBcoPair}}}}).memory(), nullptr) << "TRL 1.16 has none";
}

TEST(DpoObjective, TheRunningMeanIsTrlsAndEqualOnAllRanksUnderMicrobatch) {
  const PreferenceLossOptions loss{.terms = {{Type::kBcoPair}}, .variant = LossVariant::kTrl024};
  std::vector<std::vector<double>> saved(2);
  std::vector<double> means(3);  // of micro-batches {0, 1}, {2}, {3}
  testing::run_ranks(2, [&](std::shared_ptr<comm::Communicator> dp) {
    Bench bench(dp.get());
    const DpoObjective objective({.loss = loss, .reduction = DpoReduction::kMicrobatch});
    const bool first = dp->rank() == 0;
    const auto reward = [&](const ObjectiveResult& result) {
      return (result.metric_sums[0].item<double>() + result.metric_sums[1].item<double>()) / 2;
    };
    const double one = reward(objective.run(*bench.engine, first ? bench.batch({0, 1}) : bench.batch({2})));
    means[first ? 0 : 1] = one;
    const auto result = objective.run(*bench.engine, first ? bench.batch({3}) : bench.batch({}));
    if (first) means[2] = reward(result);
    {
      const at::NoGradGuard evaluation;
      objective.run(*bench.engine, bench.batch({4}));
    }
    saved[static_cast<size_t>(dp->rank())] = objective.memory()->save();
  });
  EXPECT_EQ(saved[0], saved[1]);
  EXPECT_EQ(saved[0].at(1), 3.0) << "evaluations do not count";
  EXPECT_NEAR(saved[0].at(0), (means[0] + means[1] + means[2]) / 3, 1e-9);
}

TEST(DpoObjective, SettingsThatDoNotFitAreRefused) {
  EXPECT_THROW(DpoObjective({.loss = {.beta = 0}}), ConfigError);
  EXPECT_THROW(DpoObjective({.policy_adapters = {}}), ConfigError);
  EXPECT_THROW(DpoObjective({.ld_alpha = 1.5}), ConfigError);
  EXPECT_THROW(DpoObjective({.loss = {.variant = LossVariant::kTrl024}, .ld_alpha = 0.5}), ConfigError);
  EXPECT_NO_THROW(DpoObjective({.policy_adapters = {}, .reference = Reference::none()}));
}

}  // namespace
}  // namespace apus::train
