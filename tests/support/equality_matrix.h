#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "tests/support/pairwise_cover.h"
#include "tests/support/partition_checks.h"
#include "tests/support/policies.h"

/// numbers.md point 1 as a matrix: policies x full or LoRA x SFT or DPO x worlds x recompute x accumulation.
namespace apus::testing {

/// How a rank's share of the twelve rows of a step is cut into micro-batches.
enum class Cut {
  kSingleRows,  ///< as many micro-batches as rows
  kPairs,       ///< of two rows each; not for the three rows of a world of four
  kWhole,       ///< one
};

/// A cell of the matrix.
struct MatrixCell {
  parallel::ShardPolicy policy;
  Job job = Job::kFullSft;
  int world = 1;
  parallel::Recompute recompute = parallel::Recompute::kNone;
  Cut cut = Cut::kSingleRows;

  TinyRun run(int64_t steps) const {
    const int64_t rows = 12 / world;
    const int64_t micro = cut == Cut::kWhole ? rows : cut == Cut::kPairs ? 2 : 1;
    return {.job = job,
            .policy = policy,
            .recompute = recompute,
            .micro_batch_rows = micro,
            .accumulation = rows / micro,
            .steps = steps};
  }
  /// Letters, digits and underscores, for the name of a test.
  std::string name() const {
    static constexpr std::array kRecompute{"whole_tape", "light_tape", "recomputed"};
    static constexpr std::array kCut{"single_rows", "pairs", "whole"};
    const bool partition = std::holds_alternative<int>(policy.reshard_after_forward);
    return detail::concat(policy.name, partition ? "_hpz" : "", is_full(job) ? "_full" : "_lora",
                          is_dpo(job) ? "_dpo" : "_sft", "_world", world, "_",
                          kRecompute[static_cast<size_t>(recompute)], "_", kCut[static_cast<size_t>(cut)]);
  }
};

/// Levels in the order of Combination: policy, full or LoRA, SFT or DPO, world, recompute, cut.
inline MatrixCell matrix_cell(const Combination& levels) {
  static const std::vector<parallel::ShardPolicy> policies = all_policies();
  static constexpr std::array kJobs{Job::kFullSft, Job::kFullDpo, Job::kLoraSft, Job::kLoraDpo};
  return {.policy = policies.at(static_cast<size_t>(levels.at(0))),
          .job = kJobs.at(static_cast<size_t>(2 * levels.at(1) + levels.at(2))),
          .world = levels.at(3) + 1,
          .recompute = static_cast<parallel::Recompute>(levels.at(4)),
          .cut = static_cast<Cut>(levels.at(5))};
}

inline std::vector<Combination> matrix_combinations() {
  const int policies = static_cast<int>(all_policies().size());
  return feasible_product({policies, 2, 2, 4, 3, 3}, [](const Combination& levels) {
    const MatrixCell cell = matrix_cell(levels);
    const bool cuts_evenly = cell.cut != Cut::kPairs || 12 / cell.world % 2 == 0;
    return cuts_evenly && fits_world(cell.policy, cell.world);
  });
}

inline std::vector<MatrixCell> matrix_cells(const std::vector<Combination>& combinations) {
  std::vector<MatrixCell> cells;
  for (const Combination& levels : combinations) cells.push_back(matrix_cell(levels));
  return cells;
}

/// One rank, one row a micro-batch, everything replicated and nothing recomputed: what every cell must equal.
/// Made once a job and number of steps.
inline const TinyResult& one_rank(Job job, int64_t steps) {
  static std::map<std::pair<Job, int64_t>, TinyResult> results;
  const auto [found, added] = results.try_emplace({job, steps});
  if (added) found->second = train_on(1, {.job = job, .steps = steps});
  return found->second;
}

inline void expect_cell_equals_one_rank(const MatrixCell& cell, int64_t steps) {
  const TinyRun run = cell.run(steps);
  const TinyResult& wanted = one_rank(cell.job, steps);
  const TinyResult found = train_on(cell.world, run);
  expect_same_numbers(found, wanted, cell.job, describe(cell.world, run));
  expect_same_weights(found, wanted, run, reference_layout(run), describe(cell.world, run));
}

}  // namespace apus::testing
