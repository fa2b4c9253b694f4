#include "apus/train/dpo_trainer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/comm/store.h"
#include "tests/support/rank_threads.h"
#include "tests/support/tiny_training.h"

namespace apus::train {
namespace {

using testing::Job;
using testing::tiny_rows;

const testing::TinyRun kRun{.job = Job::kLoraDpo, .accumulation = 4, .steps = 10, .learning_rate = 1e-2};

/// A model with an adapter and an engine over one rank, and what a trainer needs around them.
struct Bench {
  Bench()
      : model(testing::tiny_model(kRun)),
        world(comm::GlooCommunicator::create(comm::make_hash_store(), {})),
        engine(*model, *world, {.recompute = parallel::Recompute::kNone}) {
    options.trainer = testing::tiny_options(kRun);
    context = {.clock = &clock, .logger = &logger};
    context.callbacks.on_step = [this](const StepReport& report) { losses.push_back(report.loss); };
  }

  std::unique_ptr<models::Qwen2> model;
  std::unique_ptr<comm::Communicator> world;
  parallel::ShardedModel engine;
  SystemClock clock;
  NullLogger logger;
  DpoTrainerOptions options;
  TrainerContext context;
  std::vector<double> losses;
};

/// Runs to the end, but stops after about `stop_after` steps and goes on with a new trainer from the saved
/// state.
void run_with_a_break(Bench& bench, const std::shared_ptr<const data::Dataset>& rows, size_t stop_after) {
  std::atomic<bool> stop = false;
  std::string saved;
  TrainerContext context = bench.context;
  context.stop = &stop;
  context.callbacks.on_step = [&](const StepReport& report) {
    bench.losses.push_back(report.loss);
    stop = bench.losses.size() >= stop_after;
  };
  context.callbacks.on_save = [&](const TrainerState& state) { saved = to_json(state).dump(); };
  DpoTrainer first(bench.engine, bench.options, context);
  EXPECT_FALSE(first.run(rows).finished);
  ASSERT_GE(bench.losses.size(), stop_after);
  DpoTrainer second(bench.engine, bench.options, bench.context);
  second.run(rows, {}, trainer_state_from_json(nlohmann::json::parse(saved), "saved"));
}

/// The message with which a trainer is refused; empty if it is made.
std::string refusal(Bench& bench) {
  try {
    DpoTrainer trainer(bench.engine, bench.options, bench.context);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

TEST(DpoTrainer, StartsAtLn2AndLearnsThePairs) {
  Bench bench;
  const auto pairs = tiny_rows(Job::kLoraDpo, 4);
  DpoTrainer trainer(bench.engine, bench.options, bench.context);
  EXPECT_NEAR(trainer.evaluate(*pairs).loss, std::log(2.0), 1e-6);
  const RunSummary summary = trainer.run(pairs);
  EXPECT_TRUE(summary.finished);
  ASSERT_EQ(bench.losses.size(), 10U);
  EXPECT_NEAR(bench.losses.front(), std::log(2.0), 1e-6);
  const EvaluationReport after = trainer.evaluate(*pairs);
  EXPECT_LT(after.loss, 0.5);
  EXPECT_DOUBLE_EQ(after.metrics.at(2), 1.0) << "rewards/accuracies";
}

TEST(DpoTrainer, TakesAFrozenCopyAsReference) {
  Bench bench;
  peft::copy_adapter(*bench.model, "default", "reference");
  bench.options.dpo.reference = Reference::adapter({"reference"}, "");
  const auto frozen = testing::copies(peft::adapter_parameters(*bench.model, "reference"));
  DpoTrainer trainer(bench.engine, bench.options, bench.context);
  trainer.run(tiny_rows(Job::kLoraDpo, 4));
  EXPECT_NEAR(bench.losses.front(), std::log(2.0), 1e-6);
  EXPECT_LT(bench.losses.back(), bench.losses.front());
  const auto after = peft::adapter_parameters(*bench.model, "reference");
  for (size_t i = 0; i < after.size(); ++i)
    EXPECT_TRUE(after[i].tensor.equal(frozen[i].tensor)) << after[i].name;
}

TEST(DpoTrainer, RefusesAReferenceThatWouldMove) {
  Bench bench;
  bench.options.dpo.reference = Reference::adapter({"default"}, "");
  EXPECT_NE(refusal(bench).find("reference adapter \"default\" is trainable"), std::string::npos);
}

TEST(DpoTrainer, RefusesAdaptersThatAreNotThere) {
  Bench bench;
  bench.options.dpo.reference = Reference::adapter({"old"}, "");
  EXPECT_NE(refusal(bench).find("no adapter \"old\""), std::string::npos);
  bench.options.dpo.reference = {};
  bench.options.dpo.policy_adapters = {"new"};
  EXPECT_NE(refusal(bench).find("no adapter \"new\""), std::string::npos);
}

TEST(DpoTrainer, RefusesToTrainAnAdapterThatIsNotActive) {
  Bench bench;
  peft::copy_adapter(*bench.model, "default", "other");
  bench.options.dpo.policy_adapters = {"other"};
  EXPECT_NE(refusal(bench).find("adapter \"default\" is trainable"), std::string::npos);
}

TEST(DpoTrainer, RefusesTextsWithoutPairs) {
  Bench bench;
  DpoTrainer trainer(bench.engine, bench.options, bench.context);
  const auto texts = tiny_rows(Job::kFullSft, 4);
  EXPECT_THROW(trainer.run(texts), ConfigError);
  EXPECT_THROW(trainer.run(tiny_rows(Job::kLoraDpo, 4), texts), ConfigError);
  EXPECT_THROW(trainer.evaluate(*texts), ConfigError);
  EXPECT_TRUE(bench.losses.empty());
}

TEST(DpoTrainer, GoesOnWithTheRunningMeanWhereItStopped) {
  for (const DpoReduction reduction : {DpoReduction::kPairs, DpoReduction::kMicrobatch}) {
    Bench whole, broken;
    for (Bench* bench : {&whole, &broken}) {
      bench->options.dpo.reduction = reduction;
      bench->options.dpo.loss = {
          .terms = {{PreferenceLossType::kBcoPair}}, .variant = LossVariant::kTrl024, .beta = 5};
    }
    const auto rows = tiny_rows(Job::kLoraDpo, 9);
    DpoTrainer(whole.engine, whole.options, whole.context).run(rows);
    run_with_a_break(broken, rows, 4);
    EXPECT_EQ(broken.losses, whole.losses);
    EXPECT_LT(whole.losses.back(), whole.losses.front());
  }
}

TEST(DpoTrainer, TrainsAllParametersAgainstASecondModel) {
  const testing::TinyRun run{.job = Job::kFullDpo, .accumulation = 4, .steps = 6, .learning_rate = 1e-3};
  auto model = testing::tiny_model(run);
  auto world = comm::GlooCommunicator::create(comm::make_hash_store(), {});
  parallel::ShardedModel engine(*model, *world, {.recompute = parallel::Recompute::kNone});
  models::PretrainedModel loaded;
  loaded.model = testing::frozen_tiny_model(run);
  ReferenceModel second(std::move(loaded), *world, engine.options());
  SystemClock clock;
  NullLogger logger;
  std::vector<double> losses;
  TrainerContext context{.clock = &clock, .logger = &logger};
  context.callbacks.on_step = [&](const StepReport& report) { losses.push_back(report.loss); };
  DpoTrainerOptions options{.dpo = {.policy_adapters = {}, .reference = second.reference()},
                            .trainer = testing::tiny_options(run)};
  DpoTrainer(engine, options, context).run(tiny_rows(run.job, 4));
  EXPECT_NEAR(losses.front(), std::log(2.0), 1e-5);
  EXPECT_LT(losses.back(), 0.6);
}

TEST(DpoTrainer, WarnsOfSettingsThatNoLossReads) {
  Bench bench;
  CaptureLogger logger;
  bench.context.logger = &logger;
  bench.options.dpo.loss.label_smoothing = 0.1;
  DpoTrainer trainer(bench.engine, bench.options, bench.context);
  EXPECT_EQ(logger.count("label_smoothing 0.1 has no effect"), 1);
}

TEST(DpoTrainer, DropsInThePolicyAloneAndOnlyIfAsked) {
  testing::TinyRun run = kRun;
  const auto losses = [&](double dropout, std::optional<uint64_t> seed) {
    auto model = testing::frozen_tiny_model(run);
    peft::LoraConfig config{.r = 4, .lora_alpha = 8, .lora_dropout = dropout};
    config.targets.all_linear = true;
    peft::apply_lora(*model, config, "default", {.seed = 5});
    auto world = comm::GlooCommunicator::create(comm::make_hash_store(), {});
    parallel::ShardedModel engine(*model, *world, {.recompute = parallel::Recompute::kNone});
    SystemClock clock;
    NullLogger logger;
    std::vector<double> found;
    TrainerContext context{.clock = &clock, .logger = &logger};
    context.callbacks.on_step = [&](const StepReport& report) { found.push_back(report.loss); };
    DpoTrainer trainer(engine, {.dpo = {.dropout_seed = seed}, .trainer = testing::tiny_options(run)},
                       context);
    const auto rows = tiny_rows(Job::kLoraDpo, 4);
    EXPECT_NEAR(trainer.evaluate(*rows).loss, std::log(2.0), 1e-6);
    trainer.run(rows);
    const double before = trainer.evaluate(*rows).loss;
    EXPECT_EQ(trainer.evaluate(*rows).loss, before) << "evaluation drops nothing";
    return found;
  };
  const auto without = losses(0.3, std::nullopt), with = losses(0.3, 42), again = losses(0.3, 42);
  EXPECT_EQ(without, losses(0.0, 42)) << "disable_dropout";
  EXPECT_NE(with, without);
  EXPECT_EQ(with, again);
}

}  // namespace
}  // namespace apus::train
