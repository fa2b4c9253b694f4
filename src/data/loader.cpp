#include "apus/data/loader.h"

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "apus/base/clock.h"
#include "apus/base/error.h"
#include "apus/data/dataset.h"
#include "data/step_rows.h"

namespace apus::data {
namespace {

const Clock& machine_clock() {
  static const SystemClock kClock;
  return kClock;
}

/// One micro-batch of the run.
struct Task {
  LoaderCursor at;
  int64_t micro_batch = 0;
};

LoaderCursor following(LoaderCursor at, const StepPlan& plan) {
  if (++at.step < plan.steps_per_epoch()) return at;
  return {at.epoch + 1, 0};
}

}  // namespace

/// Makes any micro-batch of the run; knows nothing of what was made before.
class Loader::Source {
 public:
  Source(std::shared_ptr<const Dataset> dataset, Sampler sampler, StepPlan plan, const LoaderOptions& options)
      : dataset_(dataset),
        rows_(std::move(dataset), std::move(sampler), std::move(plan), options.balance,
              options.collate.layout == BatchLayout::kPadded ? DealGoal::kLikeCosts : DealGoal::kEvenCosts),
        rank_(options.rank),
        collate_(options.collate) {}

  const StepPlan& plan() const { return rows_.plan(); }
  int64_t rows(const LoaderCursor& at) { return rows_.rows({at.epoch, at.step}); }

  Batch make(const Task& task) {
    MicroBatchRows rows = rows_.micro_batch({task.at.epoch, task.at.step}, task.micro_batch, rank_);
    Batch batch = collate(rows.ordinals);
    APUS_CHECK(static_cast<int64_t>(rows.places.size()) == batch.rows, ShapeError,
               "the dataset made a batch of ", batch.rows, " rows, expected ", rows.places.size());
    batch.places = std::move(rows.places);
    batch.epoch = task.at.epoch;
    return batch;
  }

 private:
  Batch collate(const std::vector<int64_t>& ordinals) const {
    try {
      return dataset_->collate(ordinals, collate_);
    } catch (const Error&) {  // says itself what is wrong
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      std::string rows;
      for (const int64_t ordinal : ordinals)
        rows += (rows.empty() ? "" : ", ") + dataset_->place_text(ordinal);
      throw DataError(rows.empty() ? "an empty micro-batch" : rows, 0, error.what());
    }
  }

  std::shared_ptr<const Dataset> dataset_;
  StepRows rows_;
  int64_t rank_;
  CollateOptions collate_;
};

/// Threads that make micro-batches ahead, each the next one that nobody has taken; delivered in order.
class Loader::Workers {
 public:
  Workers(Source& source, const LoaderOptions& options)
      : source_(source),
        capacity_(options.workers * options.prefetch_factor),
        steps_left_(options.steps),
        task_{options.start, 0} {
    for (int64_t i = 0; i < options.workers; ++i) threads_.emplace_back([this] { run(); });
  }

  ~Workers() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    room_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  /// The next micro-batch in order; what making it threw stays, and is thrown again by every later call.
  Batch take() {
    std::unique_lock lock(mutex_);
    made_.wait(lock, [this] { return results_.contains(delivered_); });
    Result& result = results_.at(delivered_);
    if (result.error) std::rethrow_exception(result.error);
    Batch batch = std::move(result.batch);
    results_.erase(delivered_++);
    room_.notify_one();
    return batch;
  }

 private:
  struct Result {
    Batch batch;
    std::exception_ptr error;
  };

  bool has_task() const { return (!steps_left_ || *steps_left_ > 0) && taken_ < delivered_ + capacity_; }

  Task next_task() {
    const Task task = task_;
    if (++task_.micro_batch == source_.plan().micro_batches(task_.at.step)) {
      task_ = {following(task_.at, source_.plan()), 0};
      if (steps_left_) --*steps_left_;
    }
    return task;
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      room_.wait(lock, [this] { return stopping_ || has_task(); });
      if (stopping_) return;
      const int64_t number = taken_++;
      const Task task = next_task();
      lock.unlock();
      Result result = attempt(task);
      lock.lock();
      results_.emplace(number, std::move(result));
      made_.notify_one();
    }
  }

  Result attempt(const Task& task) {
    try {
      return {source_.make(task), nullptr};
    } catch (...) {
      return {{}, std::current_exception()};
    }
  }

  Source& source_;
  const int64_t capacity_;
  std::mutex mutex_;
  std::condition_variable room_;
  std::condition_variable made_;
  bool stopping_ = false;
  std::optional<int64_t> steps_left_;
  Task task_;
  int64_t taken_ = 0;
  int64_t delivered_ = 0;
  std::map<int64_t, Result> results_;
  std::vector<std::thread> threads_;
};

Loader::Loader(std::shared_ptr<const Dataset> dataset, Sampler sampler, StepPlan plan, LoaderOptions options)
    : cursor_(options.start),
      steps_left_(options.steps),
      clock_(options.clock ? options.clock : &machine_clock()) {
  const int64_t rows = dataset->size();
  APUS_CHECK(sampler.options().rows == rows && plan.options().rows == rows, ConfigError,
             "loader: the dataset has ", rows, " rows, the sampler ", sampler.options().rows, ", the plan ",
             plan.options().rows);
  APUS_CHECK(options.rank >= 0 && options.rank < plan.options().world, ConfigError, "loader: rank ",
             options.rank, " is outside the world of ", plan.options().world);
  APUS_CHECK(options.workers >= 0 && options.workers <= 1024, ConfigError, "dataloader_num_workers is ",
             options.workers, ", expected 0 to 1024");
  APUS_CHECK(options.workers == 0 || (options.prefetch_factor >= 1 && options.prefetch_factor <= 65536),
             ConfigError, "dataloader_prefetch_factor is ", options.prefetch_factor, ", expected 1 to 65536");
  APUS_CHECK(cursor_.epoch >= 0 && cursor_.step >= 0 && cursor_.step < plan.steps_per_epoch(), ConfigError,
             "loader: epoch ", cursor_.epoch, ", step ", cursor_.step, " is outside the epoch of ",
             plan.steps_per_epoch(), " steps");
  APUS_CHECK(!steps_left_ || *steps_left_ >= 0, ConfigError, "loader: steps is ", *steps_left_,
             ", expected 0 or more");
  if (options.balance && rows > 0)
    row_cost(*dataset, 0, *options.balance);  // refuses a weight that cannot be
  source_ = std::make_unique<Source>(std::move(dataset), std::move(sampler), std::move(plan), options);
  if (options.workers > 0) workers_ = std::make_unique<Workers>(*source_, options);
}

Loader::~Loader() = default;

Batch Loader::take(int64_t micro_batch) {
  const auto begin = clock_->steady_now();
  Batch batch = workers_ ? workers_->take() : source_->make({cursor_, micro_batch});
  data_wait_ms_ += 1e3 * seconds_between(begin, clock_->steady_now());
  return batch;
}

StepBatches Loader::next() {
  APUS_CHECK(!steps_left_ || *steps_left_ > 0, ConfigError,
             "loader: all steps that it was made for are delivered");
  const StepPlan& plan = source_->plan();
  StepBatches step{cursor_.epoch, cursor_.step, source_->rows(cursor_), {}};
  for (int64_t m = 0; m < plan.micro_batches(cursor_.step); ++m) step.micro_batches.push_back(take(m));
  cursor_ = following(cursor_, plan);
  if (steps_left_) --*steps_left_;
  return step;
}

}  // namespace apus::data
