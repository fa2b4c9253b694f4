#include "apus/train/sft_trainer.h"

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

/// A model and an engine over one rank, and what a trainer needs around them.
struct Bench {
  explicit Bench(const testing::TinyRun& run)
      : model(testing::tiny_model(run)),
        world(comm::GlooCommunicator::create(comm::make_hash_store(), {})),
        engine(*model, *world, {.recompute = parallel::Recompute::kNone}) {
    options.trainer = testing::tiny_options(run);
    context = {.clock = &clock, .logger = &logger};
    context.callbacks.on_step = [this](const StepReport& report) { losses.push_back(report.loss); };
  }

  std::unique_ptr<models::Qwen2> model;
  std::unique_ptr<comm::Communicator> world;
  parallel::ShardedModel engine;
  SystemClock clock;
  NullLogger logger;
  SftTrainerOptions options;
  TrainerContext context;
  std::vector<double> losses;
};

testing::TinyRun lora_run() {
  testing::TinyRun run{.job = Job::kLoraDpo, .accumulation = 4, .steps = 12, .learning_rate = 2e-2};
  return run;
}

TEST(SftTrainer, LowersTheLossOfAllParameters) {
  Bench bench({.accumulation = 4, .steps = 12, .learning_rate = 1e-2});
  const auto rows = tiny_rows(Job::kFullSft, 4);
  SftTrainer trainer(bench.engine, bench.options, bench.context);
  const double before = trainer.evaluate(*rows).loss;
  const RunSummary summary = trainer.run(rows);
  EXPECT_TRUE(summary.finished);
  EXPECT_EQ(summary.steps, 12);
  ASSERT_EQ(bench.losses.size(), 12U);
  EXPECT_NEAR(bench.losses.front(), before, 1e-5) << "four rows are the whole data and one step";
  EXPECT_LT(trainer.evaluate(*rows).loss, 0.8 * before);
}

TEST(SftTrainer, TrainsAnAdapterAndLeavesTheBaseAlone) {
  Bench bench(lora_run());
  const auto base = testing::copies(bench.model->named_parameters());
  bench.options.adapters = {"default"};
  const auto rows = tiny_rows(Job::kFullSft, 4);
  SftTrainer trainer(bench.engine, bench.options, bench.context);
  const double before = trainer.evaluate(*rows).loss;
  trainer.run(rows);
  EXPECT_LT(trainer.evaluate(*rows).loss, 0.9 * before);
  const auto after = bench.model->named_parameters();
  ASSERT_EQ(after.size(), base.size());
  int64_t moved = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    const bool equal = after[i].tensor.equal(base[i].tensor);
    EXPECT_TRUE(equal || after[i].tensor.requires_grad()) << after[i].name << " is frozen but has moved";
    moved += equal ? 0 : 1;
  }
  EXPECT_GT(moved, 0);
}

TEST(SftTrainer, DropoutOfAnAdapterChangesTrainingButNoEvaluation) {
  const auto rows = tiny_rows(Job::kFullSft, 4);
  const auto losses_with = [&](double dropout, uint64_t seed) {
    models::Qwen2 model({}, at::kFloat);
    models::init_random(model, {.seed = 3, .standard_deviation = 0.2});
    peft::LoraConfig config{.r = 4, .lora_alpha = 32, .lora_dropout = dropout};
    config.targets.all_linear = true;
    peft::apply_lora(model, config, "default", {.seed = 5});
    const auto world = comm::GlooCommunicator::create(comm::make_hash_store(), {});
    parallel::ShardedModel engine(model, *world, {});
    SystemClock clock;
    NullLogger logger;
    TrainerContext context{.clock = &clock, .logger = &logger};
    std::vector<double> losses;
    context.callbacks.on_step = [&](const StepReport& report) { losses.push_back(report.loss); };
    testing::TinyRun run{.accumulation = 2, .steps = 4, .learning_rate = 1e-2};
    SftTrainer trainer(engine, {.adapters = {"default"}, .seed = seed, .trainer = testing::tiny_options(run)},
                       context);
    losses.push_back(trainer.evaluate(*rows).loss);
    trainer.run(rows);
    return losses;
  };
  const auto none = losses_with(0.0, 1), some = losses_with(0.3, 1), again = losses_with(0.3, 1),
             other = losses_with(0.3, 2);
  EXPECT_EQ(none[0], some[0]) << "B is zero at first, and an evaluation drops nothing";
  EXPECT_NE(none[4], some[4]);
  EXPECT_EQ(some, again);
  EXPECT_NE(some[4], other[4]) << "another seed, another mask";
}

TEST(SftTrainer, MoreChannelsThanCanBeShownAreAWarning) {
  Bench bench({.accumulation = 2, .steps = 1});
  std::vector<data::SftRow> rows;
  for (int i = 0; i < 70; ++i)
    rows.push_back({.input_ids = {1, 2, 3}, .labels = {1, 2, 3}, .channel = std::to_string(i)});
  CaptureLogger logger;
  bench.context.logger = &logger;
  SftTrainer trainer(bench.engine, bench.options, bench.context);
  trainer.run(std::make_shared<data::SftDataset>(rows));
  EXPECT_TRUE(logger.contains("rows name 70 channels, more than the 64"));
  EXPECT_EQ(trainer.trainer().objective().metrics().size(), 1u);
  rows.resize(64);
  trainer.run(std::make_shared<data::SftDataset>(rows));
  EXPECT_EQ(trainer.trainer().objective().metrics().size(), 65u);
}

TEST(SftTrainer, StepTakesTheCallersBatchesAndRate) {
  Bench bench({.accumulation = 1, .steps = 1});
  const auto rows = tiny_rows(Job::kFullSft, 2);
  SftTrainer trainer(bench.engine, bench.options, bench.context);
  const std::vector<int64_t> both{0, 1};
  const StepReport still = trainer.step({rows->collate(both, {})}, 0.0);
  const StepReport again = trainer.step({rows->collate(both, {})}, 1e-2);
  EXPECT_EQ(still.step, 1);
  EXPECT_EQ(again.learning_rate, 1e-2);
  EXPECT_DOUBLE_EQ(still.loss, again.loss) << "a rate of 0 changes nothing";
  EXPECT_LT(trainer.step({rows->collate(both, {})}, 0.0).loss, again.loss);
}

TEST(SftTrainer, RefusesAnAdapterThatIsNotThere) {
  Bench bench(lora_run());
  bench.options.adapters = {"default", "absent"};
  try {
    SftTrainer trainer(bench.engine, bench.options, bench.context);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("no adapter \"absent\""), std::string::npos) << error.what();
  }
}

TEST(SftTrainer, RefusesToTrainAnAdapterThatIsNotActive) {
  Bench bench(lora_run());
  try {
    SftTrainer trainer(bench.engine, bench.options, bench.context);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("adapter \"default\" is trainable"), std::string::npos)
        << error.what();
  }
}

TEST(SftTrainer, RefusesPreferencePairs) {
  Bench bench({.steps = 1});
  SftTrainer trainer(bench.engine, bench.options, bench.context);
  const auto pairs = tiny_rows(Job::kLoraDpo, 4);
  EXPECT_THROW(trainer.run(pairs), ConfigError);
  EXPECT_THROW(trainer.run(tiny_rows(Job::kFullSft, 4), pairs), ConfigError);
  EXPECT_THROW(trainer.evaluate(*pairs), ConfigError);
  EXPECT_TRUE(bench.losses.empty());
}

}  // namespace
}  // namespace apus::train
