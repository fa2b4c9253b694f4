// numbers.md point 1 over batches: the same rows a step give the same run, padded, without padding, in packs,
// or dealt by cost, on one rank and on two.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "apus/data/loader.h"
#include "apus/data/packing.h"
#include "tests/support/partition_checks.h"

namespace apus::testing {
namespace {

constexpr int64_t kSteps = 10;
constexpr int64_t kPacksAStep = 4;

using StepSource = std::function<std::vector<data::Batch>(int64_t step)>;

/// The tiny rows; those of SFT weigh 0, 0.5, 1 or 2 by position.
std::shared_ptr<const data::Dataset> weighted_rows(Job job) {
  const auto plain = tiny_rows(job, 37);
  if (job == Job::kLoraDpo) return plain;
  std::vector<data::SftRow> rows;
  for (int64_t i = 0; i < plain->size(); ++i) {
    data::SftRow row = dynamic_cast<const data::SftDataset&>(*plain).row(i);
    constexpr float kWeights[] = {0.0F, 0.5F, 1.0F, 2.0F};
    for (size_t t = 0; t < row.labels.size(); ++t)
      row.weights.push_back(row.labels[t] == data::kIgnoredLabel ? 0.0F : kWeights[(t + rows.size()) % 4]);
    rows.push_back(std::move(row));
  }
  return std::make_shared<data::SftDataset>(std::move(rows));
}

std::shared_ptr<const data::PackedDataset> packs_of(Job job) {
  const int64_t length = job == Job::kFullSft ? 40 : 72;
  return std::make_shared<data::PackedDataset>(weighted_rows(job),
                                               data::PackingOptions{.packing_length = length});
}

TinyResult run_steps(const TinyRun& run, comm::Communicator& dp, const StepSource& source) {
  const auto model = tiny_model(run);
  parallel::ShardedModel engine(*model, dp, {.policy = run.policy, .head_chunk_tokens = 16});
  TinyResult result;
  result.before = copies(engine.gather_masters());
  SystemClock clock;
  NullLogger logger;
  train::Trainer trainer(engine, tiny_objective(run.job), tiny_options(run),
                         {.clock = &clock, .logger = &logger});
  for (int64_t step = 0; step < run.steps; ++step) {
    const train::StepReport report = trainer.step(source(step), run.learning_rate);
    result.losses.push_back(report.loss);
    result.grad_norms.push_back(report.grad_norm);
  }
  result.after = copies(engine.gather_masters());
  for (const auto& state : engine.optimizer_states()) result.exp_avg_sq.push_back(state.exp_avg_sq.clone());
  return result;
}

/// How one run makes its batches.
struct Variant {
  std::string name;
  int world = 1;
  int64_t micro = 1;
  data::BatchLayout layout = data::BatchLayout::kPacked;
  std::optional<data::CostModel> balance = {};
};

data::Loader make_loader(const std::shared_ptr<const data::Dataset>& dataset, const Variant& variant,
                         int64_t rank, int64_t a_step) {
  return data::Loader(dataset, data::Sampler({.rows = dataset->size()}),
                      data::StepPlan({.rows = dataset->size(),
                                      .micro_batch_rows = variant.micro,
                                      .world = variant.world,
                                      .accumulation = a_step / variant.world / variant.micro}),
                      {.rank = rank,
                       .workers = rank,
                       .collate = {.layout = variant.layout},
                       .balance = variant.balance,
                       .steps = kSteps});
}

/// The dataset's steps as a loader makes them.
TinyResult train_loaded(const TinyRun& run, const std::shared_ptr<const data::Dataset>& dataset,
                        const Variant& variant, int64_t a_step) {
  TinyResult result;
  run_ranks(variant.world, [&](std::shared_ptr<comm::Communicator> dp) {
    data::Loader loader = make_loader(dataset, variant, dp->rank(), a_step);
    TinyResult own = run_steps(run, *dp, [&](int64_t) { return loader.next().micro_batches; });
    if (dp->rank() == 0) result = std::move(own);
  });
  return result;
}

/// Ordinals of the rows of each step.
std::vector<std::vector<int64_t>> rows_of_steps(const std::shared_ptr<const data::Dataset>& dataset,
                                                int64_t a_step) {
  data::Loader loader = make_loader(dataset, {}, 0, a_step);
  std::vector<std::vector<int64_t>> steps(kSteps);
  for (auto& rows : steps)
    for (const data::Batch& batch : loader.next().micro_batches)
      rows.insert(rows.end(), batch.ordinals.begin(), batch.ordinals.end());
  return steps;
}

/// The same rows a step, none of them packed: micro-batches of `micro` rows dealt in turn.
TinyResult train_listed(const TinyRun& run, const std::vector<std::vector<int64_t>>& steps,
                        const Variant& variant) {
  const auto rows = weighted_rows(run.job);
  TinyResult result;
  run_ranks(variant.world, [&](std::shared_ptr<comm::Communicator> dp) {
    TinyResult own = run_steps(run, *dp, [&](int64_t step) {
      const std::vector<int64_t>& all = steps[static_cast<size_t>(step)];
      const int64_t set = variant.micro * variant.world, count = static_cast<int64_t>(all.size());
      std::vector<data::Batch> batches;
      for (int64_t first = 0; first < count; first += set) {
        const int64_t begin = std::min(count, first + dp->rank() * variant.micro);
        const int64_t end = std::min(count, begin + variant.micro);
        batches.push_back(rows->collate(
            std::span(all).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
            {.layout = variant.layout}));
      }
      return batches;
    });
    if (dp->rank() == 0) result = std::move(own);
  });
  return result;
}

class BatchLayouts : public ::testing::TestWithParam<Job> {
 protected:
  TinyRun run_{.job = GetParam(), .policy = parallel::Zero2(), .steps = kSteps};

  void expect_equal(const TinyResult& found, const TinyResult& wanted, const Variant& variant) const {
    const std::string what =
        detail::concat(variant.name, ", world ", variant.world, ", micro ", variant.micro);
    expect_same_numbers(found, wanted, run_.job, what);
    expect_same_weights(found, wanted, run_, reference_layout(run_), what);
  }
};

TEST_P(BatchLayouts, PackedAndPaddingFreeEqualPaddedOnEqualRows) {
  using enum data::BatchLayout;
  const auto packs = packs_of(run_.job);
  const auto steps = rows_of_steps(packs, kPacksAStep);
  const TinyResult wanted = train_listed(run_, steps, {.layout = kPadded});
  for (const Variant& variant : {Variant{"padded", 1, 4, kPadded},
                                 {"padded", 2, 3, kPadded},
                                 {"padding free", 1, 4},
                                 {"padding free", 2, 2}})
    expect_equal(train_listed(run_, steps, variant), wanted, variant);
  for (const Variant& variant : {Variant{"packs", 1, 1},
                                 {"packs", 1, 2},
                                 {"packs", 2, 1},
                                 {"padded packs", 2, 1, kPadded},
                                 {"balanced packs", 2, 1, kPacked, data::CostModel{.attention = 0.01}}})
    expect_equal(train_loaded(run_, packs, variant, kPacksAStep), wanted, variant);
}

TEST_P(BatchLayouts, BalanceChangesNoResult) {
  using enum data::BatchLayout;
  const auto rows = weighted_rows(run_.job);
  const TinyResult wanted = train_loaded(run_, rows, {.layout = kPadded}, 12);
  const data::CostModel cost{.attention = 0.01};
  for (const Variant& variant : {Variant{"balanced", 1, 3, kPadded, cost},
                                 {"balanced", 2, 2, kPadded, cost},
                                 {"balanced, padding free", 2, 3, kPacked, cost},
                                 {"balanced", 4, 1, kPacked, cost}})
    expect_equal(train_loaded(run_, rows, variant, 12), wanted, variant);
}

TEST_P(BatchLayouts, AnEpochOfPacksMayEndUnevenly_Pitfall42) {
  const auto packs = packs_of(run_.job);
  data::Loader last = make_loader(packs, {.world = 2}, 1, kPacksAStep);
  bool empty = false;
  std::set<size_t> rows_a_step;
  for (int64_t step = 0; step < kSteps; ++step) {
    const data::StepBatches batches = last.next();
    rows_a_step.insert(static_cast<size_t>(batches.rows));
    for (const data::Batch& batch : batches.micro_batches) empty = empty || batch.is_empty();
  }
  EXPECT_TRUE(empty) << packs->size() << " packs: no rank runs an empty micro-batch, choose other rows";
  EXPECT_GT(rows_a_step.size(), 1u) << "steps of packs hold different numbers of rows";
}

INSTANTIATE_TEST_SUITE_P(Jobs, BatchLayouts, ::testing::Values(Job::kFullSft, Job::kLoraDpo),
                         [](const auto& info) {
                           return info.param == Job::kFullSft ? "FullSft" : "LoraDpo";
                         });

}  // namespace
}  // namespace apus::testing
