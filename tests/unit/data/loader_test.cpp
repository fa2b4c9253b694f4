#include "apus/data/loader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "apus/base/clock.h"
#include "apus/base/error.h"
#include "apus/data/dataset.h"
#include "apus/data/packing.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

/// Pairs whose collation can be slow, or fail at one row.
class ProbeDataset final : public Dataset {
 public:
  explicit ProbeDataset(int64_t rows) : inner_(make_pairs(rows), {.files = {"a.jsonl"}}) {}
  int64_t size() const override { return inner_.size(); }
  Batch collate(std::span<const int64_t> ordinals, const CollateOptions& options) const override {
    ++calls;
    if (uneven)
      std::this_thread::sleep_for(std::chrono::microseconds(ordinals.empty() ? 0 : 300 * (ordinals[0] % 3)));
    for (const int64_t ordinal : ordinals) {
      if (ordinal == bad_row) throw DataError("a.jsonl", ordinal + 1, "went away");
      if (ordinal == odd_row) throw std::runtime_error("odd");
    }
    return inner_.collate(ordinals, options);
  }
  RowPlace place(int64_t ordinal) const override { return {0, ordinal + 1}; }
  int64_t tokens(int64_t ordinal) const override { return inner_.tokens(ordinal); }
  const DatasetOrigin& origin() const override { return inner_.origin(); }

  bool uneven = false;
  int64_t bad_row = -1;
  int64_t odd_row = -1;
  mutable std::atomic<int64_t> calls = 0;

 private:
  DpoDataset inner_;
};

constexpr int64_t kRows = 23;

Loader make_loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options, int64_t world = 1,
                   int64_t accumulation = 4) {
  const int64_t rows = dataset->size();
  return Loader(std::move(dataset), Sampler({.rows = rows}),
                StepPlan({.rows = rows, .micro_batch_rows = 2, .world = world, .accumulation = accumulation}),
                options);
}

/// Everything that decides about a step, as one list.
std::vector<int64_t> digest(const StepBatches& step) {
  std::vector<int64_t> all = {step.epoch, step.step, step.rows};
  for (size_t m = 0; m < step.micro_batches.size(); ++m) {
    for (const int64_t place : step.micro_batches[m].places) all.push_back(place);
    for (const int64_t ordinal : step.micro_batches[m].ordinals) all.push_back(ordinal);
    for (const int64_t token : values_of(step.micro_batches[m].tokens_T)) all.push_back(token);
  }
  return all;
}

TEST(Loader, DeliversTheSameWithAnyNumberOfWorkers) {
  auto dataset = std::make_shared<ProbeDataset>(kRows);
  dataset->uneven = true;
  Loader inline_loader = make_loader(dataset, {.workers = 0});
  Loader one = make_loader(dataset, {.workers = 1, .prefetch_factor = 1});
  Loader four = make_loader(dataset, {.workers = 4, .prefetch_factor = 3});
  for (int i = 0; i < 10; ++i) {
    const auto expected = digest(inline_loader.next());
    EXPECT_EQ(digest(one.next()), expected);
    EXPECT_EQ(digest(four.next()), expected);
  }
  EXPECT_EQ(four.cursor(), (LoaderCursor{3, 1}));
}

TEST(Loader, EveryWorldTakesTheSameRowsInAStep) {
  const auto dataset = std::make_shared<ProbeDataset>(kRows);
  const std::vector<int64_t> order = Sampler({.rows = kRows}).order(0);
  for (const auto& [world, accumulation] : {std::pair<int64_t, int64_t>{1, 4}, {2, 2}, {4, 1}}) {
    for (int64_t step = 0; step < 3; ++step) {
      std::multiset<int64_t> rows;
      for (int64_t rank = 0; rank < world; ++rank) {
        Loader loader =
            make_loader(dataset, {.rank = rank, .workers = 0, .start = {0, step}}, world, accumulation);
        const StepBatches batches = loader.next();
        for (size_t m = 0; m < batches.micro_batches.size(); ++m)
          for (size_t i = 0; i < batches.micro_batches[m].ordinals.size(); ++i) {
            const int64_t ordinal = batches.micro_batches[m].ordinals[i];
            EXPECT_EQ(order[static_cast<size_t>(batches.micro_batches[m].places[i])], ordinal);
            rows.insert(ordinal);
          }
      }
      const auto begin = order.begin() + step * 8;
      const auto end = step == 2 ? order.end() : begin + 8;
      EXPECT_EQ(rows, std::multiset<int64_t>(begin, end)) << "world " << world << ", step " << step;
    }
  }
}

TEST(Loader, PacksAndBalanceChangeNoStepOfAnyWorldOrWorkers) {
  const auto pairs = std::make_shared<ProbeDataset>(kRows);
  const auto packed = std::make_shared<PackedDataset>(pairs, PackingOptions{.packing_length = 24});
  ASSERT_LT(packed->size(), kRows);
  for (const std::shared_ptr<const Dataset>& dataset : {std::shared_ptr<const Dataset>(pairs), {packed}})
    for (int64_t step = 0; step < 2; ++step) {
      std::set<std::vector<std::pair<int64_t, int64_t>>> steps;
      std::set<int64_t> counts;
      for (const auto& [world, accumulation] : {std::pair<int64_t, int64_t>{1, 4}, {2, 2}, {4, 1}})
        for (const std::optional<CostModel>& balance :
             {std::optional<CostModel>(), {CostModel{.attention = 0.1}}}) {
          std::vector<std::pair<int64_t, int64_t>> rows;  // place, ordinal
          for (int64_t rank = 0; rank < world; ++rank) {
            const LoaderOptions options{
                .rank = rank, .workers = rank % 3, .balance = balance, .start = {1, step}};
            const StepBatches batches = make_loader(dataset, options, world, accumulation).next();
            counts.insert(batches.rows);
            for (const Batch& batch : batches.micro_batches)
              for (size_t i = 0; i < batch.ordinals.size(); ++i)
                rows.emplace_back(batch.places.at(i), batch.ordinals[i]);
          }
          std::sort(rows.begin(), rows.end());
          EXPECT_EQ(static_cast<int64_t>(rows.size()), *counts.begin());
          steps.insert(rows);
        }
      EXPECT_EQ(steps.size(), 1u);
      EXPECT_EQ(counts.size(), 1u);
    }
}

TEST(Loader, BalancedPacksAreTheSameWithWorkersAndAfterAResume_Pitfall35) {
  auto pairs = std::make_shared<ProbeDataset>(kRows);
  pairs->uneven = true;
  const auto packed = std::make_shared<PackedDataset>(pairs, PackingOptions{.packing_length = 16});
  LoaderOptions options{.rank = 1, .workers = 0, .balance = CostModel{}};
  Loader whole = make_loader(packed, options, 2, 1);
  LoaderCursor cursor;
  for (int64_t part = 0; part < 3; ++part) {
    options.workers = 1 + part;
    options.start = cursor;
    Loader resumed = make_loader(packed, options, 2, 1);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(digest(resumed.next()), digest(whole.next()));
    cursor = resumed.cursor();
  }
  EXPECT_GE(cursor.epoch, 1);
}

TEST(Loader, RefusesADatasetThatMakesOtherRowsThanAsked) {
  class Short final : public Dataset {
   public:
    int64_t size() const override { return 4; }
    Batch collate(std::span<const int64_t>, const CollateOptions& options) const override {
      return inner_.collate(std::vector<int64_t>{0}, options);
    }
    RowPlace place(int64_t) const override { return {}; }
    int64_t tokens(int64_t) const override { return 1; }
    const DatasetOrigin& origin() const override { return inner_.origin(); }

   private:
    DpoDataset inner_{make_pairs(1)};
  };
  Loader loader = make_loader(std::make_shared<Short>(), {.workers = 0});
  EXPECT_NE(message_of<ShapeError>([&] { loader.next(); }).find("a batch of 1 rows, expected 2"),
            std::string::npos);
}

TEST(Loader, ARankWithoutRowsGetsAnEmptyBatch_Pitfall42) {
  Loader loader = make_loader(std::make_shared<ProbeDataset>(5), {.rank = 3}, 4, 2);
  const StepBatches step = loader.next();
  ASSERT_EQ(step.micro_batches.size(), 1u);
  EXPECT_TRUE(step.micro_batches[0].is_empty());
  EXPECT_TRUE(step.micro_batches[0].places.empty());
  EXPECT_EQ(step.rows, 5);
}

TEST(Loader, ResumesTwiceWhereItStopped_Pitfall35) {
  const auto dataset = std::make_shared<ProbeDataset>(kRows);
  Loader whole = make_loader(dataset, {});
  LoaderCursor cursor;
  for (int part = 0; part < 3; ++part) {
    Loader resumed = make_loader(dataset, {.workers = 2, .start = cursor});
    for (int i = 0; i < 2; ++i) EXPECT_EQ(digest(resumed.next()), digest(whole.next()));
    cursor = resumed.cursor();
  }
  EXPECT_EQ(cursor, (LoaderCursor{2, 0}));
}

TEST(Loader, AWorkersExceptionArrivesAtItsStep) {
  for (const int64_t workers : {0, 1, 3}) {
    auto dataset = std::make_shared<ProbeDataset>(kRows);
    dataset->bad_row = Sampler({.rows = kRows}).order(0)[11];
    Loader loader = make_loader(dataset, {.workers = workers});
    EXPECT_NO_THROW(loader.next());
    const std::string expected = "a.jsonl:" + std::to_string(dataset->bad_row + 1) + ": went away";
    for (int i = 0; i < 3; ++i) EXPECT_EQ(message_of<DataError>([&] { loader.next(); }), expected);
    EXPECT_EQ(loader.cursor(), (LoaderCursor{0, 1}));
  }
}

TEST(Loader, NamesTheRowsOfAnExceptionThatDoesNot) {
  auto dataset = std::make_shared<ProbeDataset>(2);
  dataset->odd_row = 0;
  Loader loader = make_loader(dataset, {});
  const std::string message = message_of<DataError>([&] { loader.next(); });
  EXPECT_NE(message.find("a.jsonl:1"), std::string::npos) << message;
  EXPECT_NE(message.find("odd"), std::string::npos) << message;
}

TEST(Loader, PassesOnWhatIsWrongWithItsOptions) {
  Loader loader = make_loader(std::make_shared<ProbeDataset>(kRows),
                              {.collate = {.layout = BatchLayout::kPacked, .pad_multiple = 8}});
  EXPECT_NE(message_of<ConfigError>([&] { loader.next(); }).find("pad_multiple is 8"), std::string::npos);
}

TEST(Loader, MakesNoMoreThanItsBoundAhead) {
  const auto dataset = std::make_shared<ProbeDataset>(kRows);
  Loader loader = make_loader(dataset, {.workers = 2, .prefetch_factor = 3});
  loader.next();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (dataset->calls < 4 + 6 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(dataset->calls, 4 + 6);
}

TEST(Loader, StopsAfterItsSteps) {
  const auto dataset = std::make_shared<ProbeDataset>(kRows);
  {
    Loader loader = make_loader(dataset, {.workers = 2, .prefetch_factor = 50, .steps = 3});
    for (int i = 0; i < 3; ++i) loader.next();
    EXPECT_THROW(loader.next(), ConfigError);
  }
  EXPECT_EQ(dataset->calls, 12);
}

TEST(Loader, ShutsDownWithWorkLeft) {
  auto dataset = std::make_shared<ProbeDataset>(kRows);
  dataset->uneven = true;
  for (int i = 0; i < 20; ++i) Loader loader = make_loader(dataset, {.workers = 4, .prefetch_factor = 4});
  EXPECT_EQ(dataset.use_count(), 1);
}

TEST(Loader, CountsTheTimeThatItsConsumerWaits) {
  ManualClock clock;
  Loader loader = make_loader(std::make_shared<ProbeDataset>(kRows), {.workers = 0, .clock = &clock});
  loader.next();
  EXPECT_EQ(loader.data_wait_ms(), 0);
  auto slow = std::make_shared<ProbeDataset>(kRows);
  slow->uneven = true;
  Loader waiting = make_loader(slow, {.workers = 0});
  waiting.next();
  EXPECT_GT(waiting.data_wait_ms(), 0);
}

TEST(Loader, RefusesOptionsThatDoNotFit) {
  const auto dataset = std::make_shared<ProbeDataset>(kRows);
  EXPECT_THROW(make_loader(dataset, {.rank = 1}), ConfigError);
  EXPECT_THROW(make_loader(dataset, {.workers = -1}), ConfigError);
  EXPECT_THROW(make_loader(dataset, {.prefetch_factor = 0}), ConfigError);
  EXPECT_THROW(make_loader(dataset, {.start = {0, 3}}), ConfigError);
  EXPECT_THROW(make_loader(dataset, {.start = {-1, 0}}), ConfigError);
  EXPECT_THROW(make_loader(dataset, {.steps = -1}), ConfigError);
  EXPECT_THROW(make_loader(dataset, {.balance = CostModel{.attention = -1}}), ConfigError);
  EXPECT_THROW(Loader(dataset, Sampler({.rows = 3}), StepPlan({.rows = kRows}), {}), ConfigError);
  EXPECT_THROW(Loader(dataset, Sampler({.rows = kRows}), StepPlan({.rows = 3}), {}), ConfigError);
}

TEST(Loader, BatchesSayInWhichEpochTheyStand) {
  const auto dataset = std::make_shared<const ProbeDataset>(kRows);
  Loader loader = make_loader(dataset, {.workers = 2});
  for (int64_t step = 0; step < 7; ++step) {
    const StepBatches batches = loader.next();
    for (const Batch& batch : batches.micro_batches) EXPECT_EQ(batch.epoch, batches.epoch);
  }
  EXPECT_EQ(loader.cursor().epoch, 2) << "three steps an epoch: the border was crossed";
}

}  // namespace
}  // namespace apus::data
