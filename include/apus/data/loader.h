#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "apus/base/api.h"
#include "apus/data/balance.h"
#include "apus/data/batch.h"
#include "apus/data/collator.h"
#include "apus/data/sampler.h"

namespace apus {
class Clock;
}

namespace apus::data {

class Dataset;

/// The next step that a loader delivers: all that a checkpoint needs to know about the data.
struct LoaderCursor {
  /// Counted from 0.
  int64_t epoch = 0;
  /// Within the epoch.
  int64_t step = 0;
  friend bool operator==(const LoaderCursor&, const LoaderCursor&) = default;
};

/// How batches are made.
struct LoaderOptions {
  /// This process's place among the ranks of the plan's world.
  int64_t rank = 0;
  /// Background threads; 0 = batches are made when they are asked for. Performance only.
  int64_t workers = 1;
  /// Micro-batches a worker makes ahead. Performance only.
  int64_t prefetch_factor = 2;
  /// Layout and padding.
  CollateOptions collate = {};
  /// Deal the rows of a step to micro-batches and ranks by this cost, see balance_step: rows of like cost
  /// together where they are padded, else even costs. None: in the order of the epoch, as StepPlan says.
  ///
  /// Which rows form a step stays the same, so results differ by rounding alone, except where the loss looks
  /// at which rows share a micro-batch: leave it out for `--dpo_reduction microbatch`, for losses that sort
  /// inside a micro-batch, and for comparisons with a trainer that takes rows in order.
  std::optional<CostModel> balance = {};
  /// Where to begin.
  LoaderCursor start = {};
  /// Steps that will be asked for; none = no end. Workers make nothing beyond.
  std::optional<int64_t> steps = {};
  /// Measures the waiting; nullptr: the machine's clock. Must outlive the loader.
  const Clock* clock = nullptr;
};

/// This rank's part of one optimizer step.
struct APUS_API StepBatches {
  /// Counted from 0.
  int64_t epoch = 0;
  /// Within the epoch.
  int64_t step = 0;
  /// Rows of the whole step, over all ranks (pairs in DPO); with packs those that stand in them.
  int64_t rows = 0;
  /// This rank's micro-batches; equally many on all ranks, some may be empty.
  std::vector<Batch> micro_batches;
};

/// Delivers a rank's micro-batches step by step and without end, epoch after epoch, made by background
/// threads.
///
/// What is delivered depends on dataset, sampler, plan, rank, balance and layout alone, not on workers or
/// timing. Which rows form a step, and their Batch::places, do not even depend on rank, balance and layout,
/// and on the plan only by rows a step. An exception on a worker reaches the caller of `next` at the step
/// that it concerns. Destroying the loader stops the threads at once.
/// Threads: one consumer.
/// Memory:  workers x prefetch_factor micro-batches, and the orders of at most two epochs (8 bytes a row).
class APUS_API Loader final {
 public:
  /// Throws:  ConfigError if sampler, plan and dataset disagree about the number of rows, the rank is not in
  ///          the plan's world, the cursor is outside the epoch, or a number is negative.
  Loader(std::shared_ptr<const Dataset> dataset, Sampler sampler, StepPlan plan, LoaderOptions options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The next step's micro-batches, in order.
  /// Throws:  what making them threw, DataError with the row's file and line where that is known; every later
  ///          call then throws the same. ConfigError beyond LoaderOptions::steps.
  StepBatches next();

  /// What `next` will deliver.
  LoaderCursor cursor() const { return cursor_; }
  /// Milliseconds that `next` has waited for data so far, over all calls.
  double data_wait_ms() const { return data_wait_ms_; }

 private:
  class Source;
  class Workers;
  Batch take(int64_t micro_batch);

  std::unique_ptr<Source> source_;
  std::unique_ptr<Workers> workers_;
  LoaderCursor cursor_;
  std::optional<int64_t> steps_left_;
  const Clock* clock_;
  double data_wait_ms_ = 0;
};

}  // namespace apus::data
