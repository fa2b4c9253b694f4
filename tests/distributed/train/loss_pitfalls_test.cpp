// Bugs of shared/pitfalls.md in how losses become a step's loss; the row ends a test's name.
#include <gtest/gtest.h>

#include <cmath>

#include "apus/comm/fake_communicator.h"
#include "tests/support/partition_checks.h"
#include "tests/support/policies.h"

namespace apus::testing {
namespace {

/// Rows of very different lengths: a mean of their means is far from the mean over tokens.
std::vector<data::SftRow> uneven_rows() {
  const PhiloxSequence random(11, "uneven");
  std::vector<data::SftRow> rows;
  for (const int64_t length : {3, 30, 4, 25}) {
    data::SftRow row{.input_ids = random_ids(random, static_cast<uint64_t>(length), length)};
    row.labels = row.input_ids;
    row.labels[0] = data::kIgnoredLabel;
    rows.push_back(std::move(row));
  }
  return rows;
}

/// Rows as micro-batches of one each, as the ranks of a world take them in turn.
std::vector<data::Batch> own_batches(int rank, int world) {
  const data::SftDataset dataset(uneven_rows());
  std::vector<data::Batch> batches;
  for (int64_t row = rank; row < dataset.size(); row += world) {
    batches.push_back(dataset.collate(std::vector<int64_t>{row}, {}));
  }
  return batches;
}

/// The loss of each row, and its tokens, without a trainer.
std::vector<std::pair<double, double>> losses_by_row(const TinyRun& run) {
  const auto alone = comm::make_fake_communicator({});
  const auto model = tiny_model(run);
  parallel::ShardedModel engine(*model, *alone, tiny_engine_options(run));
  const train::SftObjective objective;
  std::vector<std::pair<double, double>> losses;
  for (const data::Batch& batch : own_batches(0, 1)) {
    const double tokens = static_cast<double>(objective.weights(batch).at(0));
    losses.emplace_back(objective.run(engine, batch).loss_sums.at(0).item<double>(), tokens);
  }
  return losses;
}

train::StepReport one_step(const TinyRun& run, const comm::DeviceMesh& mesh,
                           const std::vector<data::Batch>& batches) {
  const TinyEngine tiny(run, mesh);
  SystemClock clock;
  NullLogger logger;
  train::Trainer trainer(*tiny.engine, tiny.objective(run.job), tiny_options(run),
                         {.clock = &clock, .logger = &logger});
  return trainer.step(batches, 1e-3);
}

TEST(StepLoss, IsAMeanOverTheTokensOfAllRanksAndMicroBatches_Pitfall1) {
  TinyRun run{.job = Job::kFullSft};
  double sum = 0, tokens = 0, mean_of_means = 0;
  for (const auto& [loss, count] : losses_by_row(run)) {
    sum += loss;
    tokens += count;
    mean_of_means += loss / count / 4;
  }
  ASSERT_GT(std::abs(mean_of_means - sum / tokens), 1e-3 * sum / tokens)
      << "the rows tell the two means apart";
  for (const parallel::ShardPolicy& policy : policies_for(2)) {
    run.policy = policy;
    run_ranks(2, [&](std::shared_ptr<comm::Communicator> world) {
      const comm::DeviceMesh mesh(world, policy.mesh());
      const train::StepReport report = one_step(run, mesh, own_batches(world->rank(), 2));
      EXPECT_NEAR(report.loss, sum / tokens, 1e-6 * sum / tokens) << policy.name;
    });
  }
}

TEST(StepLoss, OfAChannelIsAMeanOverItsTokensOfAllRanksAndMicroBatches_Pitfall1) {
  const TinyRun run{.job = Job::kFullSft};
  double sum = 0, tokens = 0, mean_of_means = 0;
  const auto losses = losses_by_row(run);
  for (const size_t row : {0, 1, 3}) {
    sum += losses[row].first;
    tokens += losses[row].second;
    mean_of_means += losses[row].first / losses[row].second / 3;
  }
  ASSERT_GT(std::abs(mean_of_means - sum / tokens), 1e-3 * sum / tokens)
      << "the rows tell the two means apart";
  std::vector<data::SftRow> rows = uneven_rows();
  for (const size_t row : {0, 1, 3}) rows[row].channel = "code";
  const data::SftDataset dataset(std::move(rows));
  run_ranks(2, [&](std::shared_ptr<comm::Communicator> world) {
    const auto model = tiny_model(run);
    parallel::ShardedModel engine(*model, *world, tiny_engine_options(run));
    SystemClock clock;
    NullLogger logger;
    const auto objective =
        std::make_shared<train::SftObjective>(train::SftObjectiveOptions{.channels = {"absent", "code"}});
    train::Trainer trainer(engine, objective, tiny_options(run), {.clock = &clock, .logger = &logger});
    std::vector<data::Batch> batches;
    for (int64_t row = world->rank(); row < dataset.size(); row += 2)
      batches.push_back(dataset.collate(std::vector<int64_t>{row}, {}));
    const train::StepReport report = trainer.step(batches, 0.0);
    ASSERT_EQ(report.metrics.size(), 3u);
    EXPECT_NEAR(report.metrics[2], sum / tokens, 1e-6 * sum / tokens);
    EXPECT_EQ(report.metric_weights[2], static_cast<int64_t>(tokens));
    EXPECT_EQ(report.metric_weights[1], 0);
    const train::EvaluationReport evaluation = trainer.evaluate(dataset);
    EXPECT_NEAR(evaluation.metrics.at(2), sum / tokens, 1e-6 * sum / tokens);
    EXPECT_EQ(evaluation.metric_weights, report.metric_weights);
  });
}

TEST(StepGradient, HoldsWhatEveryMicroBatchAdded_Pitfall4) {
  TinyRun run{.job = Job::kFullSft};
  const data::SftDataset dataset(uneven_rows());
  for (const parallel::ShardPolicy& policy : policies_for(2)) {
    run.policy = policy;
    run_ranks(2, [&](std::shared_ptr<comm::Communicator> world) {
      const comm::DeviceMesh mesh(world, policy.mesh());
      const double all = one_step(run, mesh, own_batches(world->rank(), 2)).grad_norm;
      for (const size_t missing : {0, 1}) {
        std::vector<data::Batch> batches = own_batches(world->rank(), 2);
        batches[missing] = dataset.collate({}, {});
        const double without = one_step(run, mesh, batches).grad_norm;
        EXPECT_GT(std::abs(without - all), 1e-3 * all)
            << policy.name << ": micro-batch " << missing << " was lost";
      }
    });
  }
}

TEST(StepGradient, IsDividedOnceWhateverTheAccumulation_Pitfall2) {
  TinyRun run{.job = Job::kFullSft};
  const auto alone = std::shared_ptr<comm::Communicator>(comm::make_fake_communicator({}));
  const comm::DeviceMesh one(alone, {});
  const data::SftDataset dataset(uneven_rows());
  const std::vector<data::Batch> together{dataset.collate(std::vector<int64_t>{0, 1, 2, 3}, {})};
  const train::StepReport wanted = one_step(run, one, together);
  ASSERT_GT(wanted.grad_norm, 0.0);
  const train::StepReport apart = one_step(run, one, own_batches(0, 1));
  EXPECT_NEAR(apart.grad_norm, wanted.grad_norm, 1e-5 * wanted.grad_norm) << "four micro-batches";
  for (const parallel::ShardPolicy& policy : policies_for(4)) {
    run.policy = policy;
    run_ranks(4, [&](std::shared_ptr<comm::Communicator> world) {
      const comm::DeviceMesh mesh(world, policy.mesh());
      const train::StepReport report = one_step(run, mesh, own_batches(world->rank(), 4));
      EXPECT_NEAR(report.grad_norm, wanted.grad_norm, 1e-5 * wanted.grad_norm)
          << policy.name << ", four ranks";
    });
  }
}

TEST(EmptyMicroBatches, OfALastStepCountNothingUnderAnyPolicy) {
  // 27 rows in steps of 12: the third step of an epoch has 3, so ranks run empty micro-batches, one of them
  // only those.
  for (const Job job : {Job::kFullSft, Job::kLoraDpo}) {
    const TinyRun one{.job = job, .rows = 27, .steps = 4};
    const TinyResult wanted = train_on(1, one);
    for (const parallel::ShardPolicy& policy : policies_for(4)) {
      TinyRun run = one;
      run.policy = policy;
      run.accumulation = 3;
      expect_same_numbers(train_on(4, run), wanted, job, describe(4, run));
    }
  }
}

}  // namespace
}  // namespace apus::testing
