#include "apus/train/dpo_trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

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

}  // namespace
}  // namespace apus::train
