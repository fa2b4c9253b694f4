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

/// Which rows share a micro-batch.
enum class DealGoal {
  kLikeCosts,  ///< rows of like cost, so that little is padded
  kEvenCosts,  ///< rows that make the micro-batches of a round alike: for rows without padding
};

/// How the rows of a step are dealt.
struct DealOptions {
  /// Rows of a micro-batch.
  int64_t micro_batch_rows = 1;
  /// Ranks that take different rows.
  int64_t world = 1;
  DealGoal goal = DealGoal::kLikeCosts;
};

/// Deals the rows of one optimizer step to micro-batches and ranks: chunk m x world + r of the result holds
/// the indexes (into `costs`, ascending) of micro-batch m of rank r; it is empty where that has no rows.
///
/// The costliest micro_batch_rows x world rows make the first round, the micro-batches that run at the same
/// time, and so on downwards. kLikeCosts cuts a round into chunks of neighbours, the costliest for the rank
/// with the least so far: the sums of two ranks then differ by no more than two micro-batches of some round.
/// kEvenCosts gives each row, the costliest first, to the rank with the least so far that has room.
///
/// As many micro-batches have micro_batch_rows rows, fewer, or none, as StepPlan gives; in the last round the
/// ranks without rows are those with the most to do, not the last ones. A pure function of its arguments, so
/// equal on all ranks, and after a resume.
/// Complexity:  O(n log n) in the rows of a step.
/// Determinism: bitwise; equal costs are taken in the order of the epoch.
/// Throws:      ConfigError if micro_batch_rows or world is not positive, or a cost is not finite.
APUS_API std::vector<std::vector<int64_t>> balance_step(std::span<const double> costs,
                                                        const DealOptions& options);

}  // namespace apus::data
