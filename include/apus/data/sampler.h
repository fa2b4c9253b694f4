#pragma once

#include <cstdint>
#include <vector>

#include "apus/base/api.h"

namespace apus::data {

/// What decides the order of an epoch.
struct SamplerOptions {
  /// Rows of the dataset (packs, where rows are packed).
  int64_t rows = 0;
  /// `--data_seed`.
  uint64_t seed = 42;
  /// False: file order in every epoch.
  bool shuffle = true;
};

/// The order of the rows in each epoch: a function of (seed, epoch, number of rows) and of nothing else.
/// World size, accumulation and workers have no part in it, and it has no state to save.
/// Determinism:bitwise, on every machine.
class APUS_API Sampler final {
 public:
  /// Throws:  ConfigError if rows is negative.
  explicit Sampler(SamplerOptions options);

  /// Ordinals of all rows in the order of the epoch.
  /// Memory:  8 bytes a row.
  std::vector<int64_t> order(int64_t epoch) const;
  const SamplerOptions& options() const { return options_; }

 private:
  SamplerOptions options_;
};

/// What decides how an epoch's order is cut into optimizer steps.
struct StepPlanOptions {
  /// Rows of the dataset.
  int64_t rows = 0;
  /// Rows of a micro-batch: `--per_device_train_batch_size`.
  int64_t micro_batch_rows = 1;
  /// Ranks that take different rows (the data-parallel world).
  int64_t world = 1;
  /// Micro-batches a rank runs in a step: `--gradient_accumulation_steps`.
  int64_t accumulation = 1;
  /// Drop the rows behind the last whole set of micro-batches over all ranks, as transformers does.
  bool drop_last = false;
};

/// A contiguous piece of an epoch's order.
struct OrderRange {
  int64_t first = 0;  ///< place of its first row in the epoch's order
  int64_t count = 0;  ///< rows; 0 = an empty micro-batch
  friend bool operator==(const OrderRange&, const OrderRange&) = default;
};

/// Cuts an epoch's order into steps and micro-batches.
///
/// A step takes the next micro_batch_rows x world x accumulation rows, the last one what is left. The rows of
/// a step are cut, in order, into chunks of micro_batch_rows; chunk c is micro-batch c / world of rank c %
/// world. All ranks run the same number of micro-batches in a step, ceil(rows / (micro_batch_rows x world)),
/// some of them empty. So the rows of a step depend on the product micro_batch_rows x world x accumulation
/// alone.
class APUS_API StepPlan final {
 public:
  /// Throws:  ConfigError if a number is not positive, or no step is left (with the arithmetic).
  explicit StepPlan(StepPlanOptions options);

  /// Optimizer steps in an epoch.
  int64_t steps_per_epoch() const;
  /// Steps of a whole run: ceil(epochs x steps_per_epoch), as transformers counts.
  /// Throws:  ConfigError naming --num_train_epochs if they are below 0 or beyond 1e15.
  int64_t total_steps(double epochs) const;
  /// The rows of a step, over all ranks. `step` counts within the epoch.
  OrderRange step_range(int64_t step) const;
  /// Micro-batches that each rank runs in a step.
  int64_t micro_batches(int64_t step) const;
  /// The rows of one micro-batch.
  OrderRange micro_batch_range(int64_t step, int64_t micro_batch, int64_t rank) const;
  const StepPlanOptions& options() const { return options_; }

 private:
  int64_t rows_a_step() const;

  StepPlanOptions options_;
  int64_t used_rows_;
};

}  // namespace apus::data
