#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "apus/base/api.h"
#include "apus/memory/param_group.h"
#include "apus/optim/adamw.h"
#include "apus/parallel/data_parallel.h"
#include "apus/parallel/engine_options.h"
#include "apus/parallel/grad_norm.h"
#include "apus/parallel/wait_timer.h"

namespace apus::parallel {

/// Norm, clipping and AdamW of one step over the ranges that this rank owns, and the gather of the result.
///
/// Collectives: the norm: one all_reduce of 8 bytes over dp_shard; deterministic: one all_gather of 8G/1024
///              bytes over all groups. Then, where the optimizer is sharded and parameters are not: one
///              all_gather of G size bytes a group.
/// Determinism: run-to-run; in deterministic mode the norm's bits do not depend on the policy: block sums are
///              added in fp64 in one order of units and blocks.
class APUS_API StepUpdate final {
 public:
  StepUpdate(std::vector<memory::ParamGroup*> groups, const DataParallel& ranks,
             const ShardedModelOptions& options);

  /// Euclidean norm of the step's gradient; the same on every rank.
  double norm();
  /// One AdamW step; `clip` multiplies the gradients, `step` counts from 1.
  void apply(const UpdateOptions& options, double clip, int64_t step);
  /// Starts to make the parameters that every rank holds whole equal to all ranks' masters; those of the
  /// first unit come first, as the next forward needs them.
  void start_gathers();
  /// Waits for the parameters of one group (by its ordinal), if they are on their way.
  void wait_gather(size_t group);
  /// Waits for those of all groups.
  void wait_gathers();

  /// How long the host has waited.
  const WaitTimer& waited() const { return waited_; }

 private:
  /// Settings of one parameter inside its group's flat range.
  struct Segment {
    memory::ElementRange range;
    ParameterSettings settings;
  };
  /// The norm blocks of one unit in a group: the same numbers whichever units share the group.
  struct Section {
    int unit = 0;
    at::ScalarType dtype = at::kFloat;
    size_t plan = 0;
    int64_t first_block = 0;
    int64_t last_block = 0;
  };
  struct GroupPlan {
    memory::ParamGroup* group;
    std::vector<Segment> segments;
    int64_t first_sum = 0;  // of its block sums among those of all groups on a rank
  };

  void plan_group(memory::ParamGroup& group, const ShardedModelOptions& options);
  std::vector<double> owned_block_sums(const GroupPlan& plan) const;
  double sum_over_ranks();
  double sum_in_order();
  void update_group(const GroupPlan& plan, const UpdateOptions& options, double clip, int64_t step);

  DataParallel ranks_;
  bool deterministic_;
  std::vector<GroupPlan> plans_;
  std::vector<Section> sections_;                     // last unit first
  int64_t sums_ = 0;                                  // block sums of a rank, all groups
  std::vector<std::shared_ptr<comm::Work>> gathers_;  // on their way, by group; null: not
  WaitTimer waited_;
};

}  // namespace apus::parallel
