// One rank fails in the middle of a run: all ranks end within seconds, with the first cause.
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <mutex>

#include "apus/base/error.h"
#include "apus/comm/decorators.h"
#include "tests/support/partition_checks.h"

namespace apus::testing {
namespace {

/// Rows of which one cannot be made into a batch.
class BrokenDataset final : public data::Dataset {
 public:
  explicit BrokenDataset(int64_t bad) : rows_(tiny_rows(Job::kFullSft, 24)), bad_(bad) {}
  int64_t size() const override { return rows_->size(); }
  data::Batch collate(std::span<const int64_t> ordinals, const data::CollateOptions& options) const override {
    for (const int64_t ordinal : ordinals) {
      if (ordinal == bad_) throw DataError("train.jsonl", 17, "went away");
    }
    return rows_->collate(ordinals, options);
  }
  data::RowPlace place(int64_t ordinal) const override { return rows_->place(ordinal); }
  int64_t tokens(int64_t ordinal) const override { return rows_->tokens(ordinal); }
  const data::DatasetOrigin& origin() const override { return rows_->origin(); }

 private:
  std::shared_ptr<const data::Dataset> rows_;
  int64_t bad_;
};

/// Every rank's error text.
std::vector<std::string> errors_of(int world,
                                   const std::function<void(std::shared_ptr<comm::Communicator>)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(world));
  run_ranks(world, [&](std::shared_ptr<comm::Communicator> dp) {
    const auto rank = static_cast<size_t>(dp->rank());
    try {
      body(dp);
    } catch (const std::exception& error) {
      errors[rank] = error.what();
      dp->abort(error.what());
    }
  });
  return errors;
}

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void train_on_rows(comm::Communicator& dp, std::shared_ptr<const data::Dataset> rows) {
  TinyRun run{.job = Job::kFullSft, .policy = parallel::Zero2(), .accumulation = 2, .steps = 10};
  const auto model = tiny_model(run);
  parallel::ShardedModel engine(*model, dp, {});
  SystemClock clock;
  NullLogger logger;
  auto options = tiny_options(run);
  options.shuffle = false;
  train::Trainer trainer(engine, tiny_objective(run.job), options, {.clock = &clock, .logger = &logger});
  trainer.run(std::move(rows), nullptr);
}

TEST(TrainerFault, ARowThatFailsOnOneRankEndsAllWithItsMessage) {
  std::vector<std::string> errors;
  const double seconds = seconds_of([&] {
    errors = errors_of(3, [](std::shared_ptr<comm::Communicator> dp) {
      train_on_rows(*dp, std::make_shared<BrokenDataset>(8));
    });
  });
  EXPECT_LT(seconds, 10.0);
  for (const std::string& error : errors)
    EXPECT_NE(error.find("train.jsonl:17: went away"), std::string::npos) << error;
}

TEST(TrainerFault, ARankThatThrowsInACollectiveStopsItsPeers) {
  std::vector<std::string> errors;
  const double seconds = seconds_of([&] {
    errors = errors_of(3, [](std::shared_ptr<comm::Communicator> plain) {
      const std::shared_ptr<comm::Communicator> dp = comm::make_faulty_communicator(
          plain, {{.kind = comm::FaultKind::kThrow, .rank = 1, .group = "world", .sequence = 20}});
      train_on_rows(*dp, tiny_rows(Job::kFullSft, 24));
    });
  });
  EXPECT_LT(seconds, 10.0);
  for (const std::string& error : errors) EXPECT_NE(error.find("injected fault"), std::string::npos) << error;
}

TEST(TrainerFault, ALossThatIsNoNumberOnOneRankEndsAllBeforeTheUpdate_Pitfall49) {
  std::vector<data::SftRow> rows;
  const auto plain = tiny_rows(Job::kFullSft, 24);
  for (int64_t i = 0; i < 24; ++i) {
    rows.push_back(dynamic_cast<const data::SftDataset&>(*plain).row(i));
    rows.back().place = {0, i + 1};
    if (i == 8)
      rows.back().weights.assign(rows.back().labels.size(), std::numeric_limits<float>::quiet_NaN());
  }
  const auto dataset =
      std::make_shared<data::SftDataset>(rows, data::DatasetOrigin{.files = {"train.jsonl"}});
  std::vector<std::string> errors(3);
  std::vector<int64_t> updates(3);
  const double seconds = seconds_of([&] {
    run_ranks(3, [&](std::shared_ptr<comm::Communicator> dp) {
      TinyRun run{.job = Job::kFullSft, .policy = parallel::Zero2(), .accumulation = 2, .steps = 10};
      const auto model = tiny_model(run);
      parallel::ShardedModel engine(*model, *dp, {});
      SystemClock clock;
      NullLogger logger;
      auto options = tiny_options(run);
      options.shuffle = false;
      options.save_steps = 1;
      train::TrainerContext context{.clock = &clock, .logger = &logger};
      context.callbacks.on_save = [&](const train::TrainerState& state) { EXPECT_EQ(state.global_step, 1); };
      train::Trainer trainer(engine, tiny_objective(run.job), options, context);
      try {
        trainer.run(dataset, nullptr);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(dp->rank())] = error.what();
      }
      updates[static_cast<size_t>(dp->rank())] = engine.updates();
    });
  });
  EXPECT_LT(seconds, 10.0);
  EXPECT_EQ(updates, (std::vector<int64_t>{1, 1, 1})) << "row 8 stands in step 2";
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("step 2: the loss is nan, from train.jsonl:9"), std::string::npos) << error;
    EXPECT_NE(error.find("--learning_rate"), std::string::npos) << error;
  }
}

TEST(TrainerFault, ACallbackThatThrowsOnOneRankStopsItsPeers) {
  // The host does not abort here: the trainer does.
  std::vector<std::string> errors(3);
  const double seconds = seconds_of([&] {
    run_ranks(3, [&](std::shared_ptr<comm::Communicator> dp) {
      TinyRun run{.job = Job::kFullSft, .accumulation = 2, .steps = 10};
      const auto model = tiny_model(run);
      parallel::ShardedModel engine(*model, *dp, {});
      SystemClock clock;
      NullLogger logger;
      train::TrainerContext context{.clock = &clock, .logger = &logger};
      context.callbacks.on_step = [&](const train::StepReport& report) {
        APUS_CHECK(dp->rank() != 1 || report.step < 3, Error, "callback broke");
      };
      train::Trainer trainer(engine, tiny_objective(run.job), tiny_options(run), context);
      try {
        trainer.run(tiny_rows(run.job, 24), nullptr);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(dp->rank())] = error.what();
      }
    });
  });
  EXPECT_LT(seconds, 10.0);
  for (const std::string& error : errors) EXPECT_NE(error.find("callback broke"), std::string::npos) << error;
}

TEST(TrainerFault, ARankThatDoesNotArriveIsNamedAtTheDeadline) {
  std::vector<std::string> errors(3);
  const RankThreadsOptions quick{.timeout = std::chrono::seconds(2)};
  run_ranks(
      3,
      [&](std::shared_ptr<comm::Communicator> plain) {
        const auto rank = static_cast<size_t>(plain->rank());
        const std::shared_ptr<comm::Communicator> dp =
            comm::make_faulty_communicator(plain, {{.kind = comm::FaultKind::kDelay,
                                                    .rank = 2,
                                                    .group = "world",
                                                    .sequence = 20,
                                                    .delay = std::chrono::seconds(5)}});
        try {
          train_on_rows(*dp, tiny_rows(Job::kFullSft, 24));
        } catch (const std::exception& error) {
          errors[rank] = error.what();
        }
      },
      quick);
  EXPECT_NE(errors[0].find("rank 2"), std::string::npos) << errors[0];
}

}  // namespace
}  // namespace apus::testing
