#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "apus/base/api.h"

namespace apus::data {

class Dataset;

/// What a row (or pack) costs a rank that runs it.
/// Maths:  cost = tokens + attention x (sum of the squares of its rows' tokens).
struct CostModel {
  /// Weight of attention's quadratic part against the rest, per token: about 1 / (12 x hidden size) for a
  /// usual causal block; 0 = tokens alone.
  double attention = 0.0;
};

/// The cost of a row of a dataset.
/// Throws:  ConfigError if the model's weight is negative or not finite.
APUS_API double row_cost(const Dataset& dataset, int64_t ordinal, const CostModel& model);

/// How the rows of a step are dealt.
struct DealOptions {
  /// Rows of a micro-batch.
  int64_t micro_batch_rows = 1;
  /// Ranks that take different rows.
  int64_t world = 1;
};

/// Deals the rows of one optimizer step to micro-batches and ranks: chunk m x world + r of the result holds
/// the indexes (into `costs`, ascending) of micro-batch m of rank r, empty where a rank has no rows there.
///
/// The costliest rows come first, rows of like cost share a micro-batch (so padding is small), and the
/// `world` micro-batches that run at the same time are neighbours in cost, the costliest for the rank with
/// the least so far. So the sums of two ranks differ by no more than the costs of two micro-batches of the
/// same time do. As many micro-batches have micro_batch_rows rows, fewer, or none, as StepPlan gives; ranks
/// without rows in the last round are those with the most to do, not the last ones. A pure function of its
/// arguments: equal on all ranks, and after a resume. Complexity:  O(n log n) in the rows of a step.
/// Determinism: bitwise; equal costs keep the order of the epoch.
/// Throws:      ConfigError if micro_batch_rows or world is not positive, or a cost is not finite.
APUS_API std::vector<std::vector<int64_t>> balance_step(std::span<const double> costs,
                                                        const DealOptions& options);

}  // namespace apus::data
