#pragma once

#include <cstdint>
#include <optional>
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

  /// States lie on the host.
  bool offloads() const { return policy.residency != memory::StateResidency{}; }
  /// Flags that ask for it.
  std::string flags() const;
};

/// What is tried.
struct APUS_API RankOptions {
  Card card;
  Cluster cluster;
  /// Largest micro-batch.
  int64_t max_micro_batch_rows = 16;
  /// Host memory of a machine that its ranks may pin; absent = enough.
  std::optional<int64_t> host_bytes = {};
};

/// Every strategy, micro-batch and recompute of a job, with the rows of a step as they are: those that fit,
/// the fastest first; then those that do not, the smallest first.
///
/// Tried are Ddp, Zero1, Zero2, Zero3, Fsdp with parameters kept from forward to backward, and HybridFsdp
/// over several hosts; micro-batches of 1, 2, 4, ... rows that divide the rows of a rank's step; three kinds
/// of recompute. If none of these fits, or the job offloads, zero2_offload and zero3_offload too. Of plans
/// that differ in recompute alone the slower ones that fit are left out.
APUS_API std::vector<RankedPlan> rank_plans(const PlanInput& job, const models::TokenFlops& flops,
                                            const RankOptions& options);

}  // namespace apus::train
