#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/models/model_spec.h"
#include "apus/train/cards.h"
#include "apus/train/memory_plan.h"
#include "apus/train/step_time.h"

namespace apus::train {

/// One way to run a job.
struct APUS_API RankedPlan {
  parallel::ShardPolicy policy;
  int64_t micro_batch_rows = 1;
  int64_t accumulation = 1;
  parallel::Recompute recompute = parallel::Recompute::kNone;
  MemoryPlan memory;
  StepTime time;
  bool fits = false;

  /// Flags that ask for it.
  std::string flags() const;
};

/// What is tried.
struct APUS_API RankOptions {
  Card card;
  Cluster cluster;
  /// Largest micro-batch.
  int64_t max_micro_batch_rows = 16;
};

/// Every strategy, micro-batch and recompute of a job, with the rows of a step as they are: those that fit,
/// the fastest first; then those that do not, the smallest first.
///
/// Tried are Ddp, Zero1, Zero2, Zero3, Fsdp with parameters kept from forward to backward, and HybridFsdp
/// over several hosts; micro-batches of 1, 2, 4, ... rows that divide the rows of a rank's step; three kinds
/// of recompute. Of plans that differ in recompute alone the slower ones that fit are left out.
APUS_API std::vector<RankedPlan> rank_plans(const PlanInput& job, const models::TokenFlops& flops,
                                            const RankOptions& options);

}  // namespace apus::train
