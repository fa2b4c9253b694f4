#include "apus/train/precompute_reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/data/packing.h"
#include "apus/train/answer_log_probs.h"
#include "apus/train/dpo_trainer.h"
#include "tests/support/rank_threads.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_training.h"

namespace apus::train {
namespace {

namespace fs = std::filesystem;
using testing::Job;
using testing::tiny_rows;

const testing::TinyRun kRun{
    .job = Job::kLoraDpo, .micro_batch_rows = 2, .accumulation = 2, .steps = 6, .learning_rate = 1e-2};

/// One rank's model and what precomputing takes.
struct Bench {
  explicit Bench(std::shared_ptr<comm::Communicator> group = nullptr,
                 parallel::ShardPolicy policy = parallel::Ddp())
      : dp(group ? std::move(group) : comm::GlooCommunicator::create(comm::make_hash_store(), {})),
        engine(*model, *dp, {.policy = std::move(policy), .recompute = parallel::Recompute::kNone}) {
    options.clock = &clock;
    options.logger = &logger;
    options.key = {.model = "tiny", .dtype = "float32", .max_length = "64", .truncation = "delete"};
  }

  std::shared_ptr<const ReferencedDataset> precompute(const Reference& reference = {}) {
    return precompute_reference(rows, reference, engine, options);
  }

  /// The losses of a run over a dataset, against a reference.
  std::vector<double> losses(std::shared_ptr<const data::Dataset> over, const Reference& reference) {
    std::vector<double> found;
    TrainerContext context{.clock = &clock, .logger = &logger};
    context.callbacks.on_step = [&](const StepReport& report) { found.push_back(report.loss); };
    DpoTrainer trainer(engine, {.dpo = {.reference = reference}, .trainer = testing::tiny_options(kRun)},
                       context);
    trainer.run(over, over);
    return found;
  }

  std::shared_ptr<const data::Dataset> rows = tiny_rows(Job::kLoraDpo, 9);
  std::unique_ptr<models::Qwen2> model = testing::tiny_model(kRun);
  std::shared_ptr<comm::Communicator> dp;
  parallel::ShardedModel engine;
  SystemClock clock;
  CaptureLogger logger;
  PrecomputeOptions options;
};

Reference precomputed() {
  Reference reference = Reference::adapters_off();
  reference.is_precomputed = true;
  return reference;
}

/// What the passes of training say, pair by pair in micro-batches of two.
void expect_online_values(Bench& bench, const ReferenceTable& table,
                          const data::CollateOptions& collate = {}) {
  for (int64_t row = 0; row + 1 < bench.rows->size(); row += 2) {
    const data::Batch batch = bench.rows->collate(std::vector<int64_t>{row, row + 1}, collate);
    const at::Tensor online = reference_log_probs(Reference::adapters_off(), bench.engine, batch);
    for (int64_t pair = 0; pair < 2; ++pair) {
      const auto at = static_cast<size_t>(row + pair);
      const float chosen = online[pair].item<float>(), rejected = online[2 + pair].item<float>();
      EXPECT_NEAR(table.chosen[at], chosen, 1e-6 * std::max(1.0F, std::abs(chosen))) << at;
      EXPECT_NEAR(table.rejected[at], rejected, 1e-6 * std::max(1.0F, std::abs(rejected))) << at;
    }
  }
}

TEST(PrecomputeReference, EqualsTheOnlineReferenceWhateverTheBatches) {
  for (const int64_t tokens : {int64_t{1}, int64_t{60}, int64_t{8192}}) {
    for (const auto layout : {data::BatchLayout::kPadded, data::BatchLayout::kPacked}) {
      Bench bench;
      bench.options.batch_tokens = tokens;
      bench.options.collate.layout = layout;
      expect_online_values(bench, bench.precompute()->table());
    }
  }
}

TEST(PrecomputeReference, TrainsToTheLossesOfTheOnlineReference) {
  Bench online, ahead;
  const auto wanted = online.losses(online.rows, Reference::adapters_off());
  const auto found = ahead.losses(ahead.precompute(), precomputed());
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t step = 0; step < wanted.size(); ++step) EXPECT_NEAR(found[step], wanted[step], 1e-6) << step;
  EXPECT_LT(found.back(), found.front());
}

TEST(PrecomputeReference, EachRankDoesItsPartUnderEveryPolicy) {
  Bench one;
  const ReferenceTable wanted = one.precompute()->table();
  for (const parallel::ShardPolicy& policy :
       {parallel::ShardPolicy(parallel::Zero2()), parallel::ShardPolicy(parallel::Zero3())}) {
    testing::run_ranks(2, [&](std::shared_ptr<comm::Communicator> dp) {
      Bench bench(std::move(dp), policy);
      bench.options.batch_tokens = 40;
      const ReferenceTable found = bench.precompute()->table();
      EXPECT_EQ(found.row_hashes, wanted.row_hashes);
      for (size_t row = 0; row < wanted.chosen.size(); ++row) {
        EXPECT_NEAR(found.chosen[row], wanted.chosen[row], 1e-4);
        EXPECT_NEAR(found.rejected[row], wanted.rejected[row], 1e-4);
      }
      EXPECT_EQ(bench.logger.lines().empty(), bench.dp->rank() != 0) << "rank 0 speaks";
    });
  }
}

TEST(PrecomputeReference, PacksKeepTheirRows) {
  Bench bench;
  bench.options.collate.layout = data::BatchLayout::kPacked;
  bench.rows = std::make_shared<data::PackedDataset>(bench.rows, data::PackingOptions{.packing_length = 70});
  const auto found = bench.precompute();
  EXPECT_EQ(found->table().size(), 9);
  Bench plain;
  const auto wanted = plain.precompute();
  for (size_t row = 0; row < 9; ++row)
    EXPECT_NEAR(found->table().chosen[row], wanted->table().chosen[row], 1e-4);
}

TEST(PrecomputeReference, LdAlphaKeepsTheWeighedSums) {
  Bench bench;
  bench.options.ld_alpha = 0.25;
  const auto weighed = bench.precompute();
  Bench plain;
  EXPECT_NE(weighed->table().chosen, plain.precompute()->table().chosen);
  const data::Batch batch = bench.rows->collate(std::vector<int64_t>{0}, {});
  const at::Tensor online =
      reference_log_probs(Reference::adapters_off(), bench.engine, batch, length_weights(batch, 0.25));
  EXPECT_NEAR(weighed->table().chosen[0], online[0].item<float>(), 1e-4);
}

TEST(PrecomputeReference, IsTakenFromTheCacheTheNextTime) {
  const ScratchFolder scratch;
  Bench first, second;
  first.options.cache_folder = second.options.cache_folder = scratch.path();
  const auto computed = first.precompute();
  EXPECT_TRUE(first.logger.contains("9 pairs in"));
  EXPECT_TRUE(first.logger.contains("kept in " + (scratch / "reference").string()));
  // Nothing of the second model is asked: its base is another one by now.
  for (const auto& parameter : second.model->named_parameters()) parameter.tensor.detach().fill_(0.01);
  const auto taken = second.precompute();
  EXPECT_TRUE(second.logger.contains("taken from"));
  EXPECT_EQ(taken->table().chosen, computed->table().chosen);
  EXPECT_EQ(taken->table().rejected, computed->table().rejected);
}

TEST(PrecomputeReference, RankZerosCacheServesAllRanks) {
  const ScratchFolder scratch;
  Bench first;
  first.options.cache_folder = scratch.path();
  const ReferenceTable wanted = first.precompute()->table();
  testing::run_ranks(2, [&](std::shared_ptr<comm::Communicator> dp) {
    const bool has_cache = dp->rank() == 0;  // the other rank is on a host without that folder
    Bench bench(std::move(dp));
    if (has_cache) bench.options.cache_folder = scratch.path();
    EXPECT_EQ(bench.precompute()->table().chosen, wanted.chosen);
  });
}

TEST(PrecomputeReference, AMismatchComputesAnewAndSaysWhichFieldChanged) {
  const ScratchFolder scratch;
  Bench first, other_length, other_rows, other_alpha;
  for (Bench* bench : {&first, &other_length, &other_rows, &other_alpha})
    bench->options.cache_folder = scratch.path();
  first.precompute();
  other_length.options.key.max_length = "32";
  other_length.precompute();
  EXPECT_TRUE(other_length.logger.contains("cached ones differ in max_length (64, now 32)"));
  EXPECT_TRUE(other_length.logger.contains("9 pairs in"));
  other_rows.rows = tiny_rows(Job::kLoraDpo, 5);
  EXPECT_EQ(other_rows.precompute()->table().size(), 5);
  EXPECT_TRUE(other_rows.logger.contains("cached ones differ in data ("));
  EXPECT_TRUE(first.logger.count("cached ones differ") == 0);
  other_alpha.options.ld_alpha = 0.5;
  other_alpha.precompute();
  EXPECT_TRUE(other_alpha.logger.contains("cached ones differ in ld_alpha (none, now 0.5)"));
}

TEST(PrecomputeReference, ADamagedFileIsComputedAnew) {
  const ScratchFolder scratch;
  Bench first, second;
  first.options.cache_folder = second.options.cache_folder = scratch.path();
  const auto wanted = first.precompute();
  for (const auto& each : fs::directory_iterator(scratch / "reference"))
    write_file_atomic(each.path(), "APUSREF?");
  EXPECT_EQ(second.precompute()->table().chosen, wanted->table().chosen);
  EXPECT_TRUE(second.logger.contains("are computed anew"));
}

TEST(PrecomputeReference, JobsThatStartTogetherComputeOnce) {
  const ScratchFolder scratch;
  std::vector<int> computed(3);
  testing::run_threads(3, [&](int job) {
    Bench bench;
    bench.options.cache_folder = scratch.path();
    bench.precompute();
    computed[static_cast<size_t>(job)] = bench.logger.count("9 pairs in");
  });
  EXPECT_EQ(computed[0] + computed[1] + computed[2], 1);
}

TEST(PrecomputeReference, ACacheThatCannotBeUsedDoesNotStopTheJob) {
  const ScratchFolder scratch;
  Bench bench;
  bench.options.cache_folder = scratch.put("file", "no folder");
  EXPECT_EQ(bench.precompute()->table().size(), 9);
  EXPECT_TRUE(bench.logger.contains("the reference cache cannot be used"));
}

TEST(PrecomputeReference, OneRanksErrorEndsAll) {
  class Broken final : public data::Dataset {
   public:
    explicit Broken(std::shared_ptr<const data::Dataset> rows) : rows_(std::move(rows)) {}
    int64_t size() const override { return rows_->size(); }
    data::Batch collate(std::span<const int64_t>, const data::CollateOptions&) const override {
      throw DataError("rows.jsonl", 3, "broken");
    }
    data::RowPlace place(int64_t ordinal) const override { return rows_->place(ordinal); }
    int64_t tokens(int64_t ordinal) const override { return rows_->tokens(ordinal); }
    const data::DatasetOrigin& origin() const override { return rows_->origin(); }

   private:
    std::shared_ptr<const data::Dataset> rows_;
  };
  std::vector<std::string> errors(2);
  const auto run_rank = [&](std::shared_ptr<comm::Communicator> dp) {
    const auto rank = static_cast<size_t>(dp->rank());
    Bench bench(std::move(dp));
    if (rank == 1) bench.rows = std::make_shared<Broken>(bench.rows);
    try {
      bench.precompute();
    } catch (const std::exception& error) {
      errors[rank] = error.what();
      throw;
    }
  };
  EXPECT_THROW(testing::run_ranks(2, run_rank), std::exception);
  EXPECT_NE(errors[1].find("rows.jsonl:3: broken"), std::string::npos) << errors[1];
  EXPECT_NE(errors[0].find("broken"), std::string::npos) << errors[0];
}

TEST(PrecomputeReference, NothingToPrecomputeIsRefused) {
  Bench bench;
  EXPECT_THROW(bench.precompute(Reference::none()), ConfigError);
  EXPECT_THROW(bench.precompute(precomputed()), ConfigError);
  bench.rows = tiny_rows(Job::kFullSft, 3);
  EXPECT_THROW(bench.precompute(), ConfigError);
}

TEST(ReferenceBatches, HoldRowsOfLikeCostUpToTheirTokens) {
  const auto rows = tiny_rows(Job::kLoraDpo, 30);
  std::set<int64_t> seen;
  int64_t last = INT64_MAX;
  for (const auto& batch : reference_batches(*rows, 100)) {
    const int64_t longest = rows->tokens(batch.front());
    EXPECT_LE(longest, last);
    EXPECT_LE(longest * std::ssize(batch), 100);
    for (const int64_t ordinal : batch) seen.insert(ordinal);
    last = rows->tokens(batch.back());
  }
  EXPECT_EQ(seen.size(), 30U);
  EXPECT_EQ(reference_batches(*rows, 1).size(), 30U) << "at least one pair";
}

}  // namespace
}  // namespace apus::train
