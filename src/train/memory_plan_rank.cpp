#include "apus/train/memory_plan_rank.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "apus/base/error.h"

namespace apus::train {
namespace {

using parallel::FsdpSharding;
using parallel::Recompute;

std::vector<parallel::ShardPolicy> policies(const PlanInput& job, const RankOptions& options) {
  if (job.world == 1) return {parallel::Ddp()};
  std::vector<parallel::ShardPolicy> all{parallel::Ddp(), parallel::Zero1(), parallel::Zero2(),
                                         parallel::Zero3(),
                                         parallel::Fsdp({.sharding = FsdpSharding::kShardGradOp})};
  const int hosts = job.world / options.cluster.cards_per_host;
  if (hosts > 1 && job.world % options.cluster.cards_per_host == 0) {
    all.push_back(parallel::HybridFsdp({.replicate = hosts}));
  }
  return all;
}

/// As the presets zero2_offload and zero3_offload: the optimizer alone, or all states.
std::vector<parallel::ShardPolicy> offloaded_policies() {
  using enum memory::Residency;
  std::vector<parallel::ShardPolicy> both{parallel::Zero2(), parallel::Zero3()};
  for (parallel::ShardPolicy& policy : both) {
    policy.residency.optimizer = kHost;
    if (policy.param_shard) policy.residency.gradients = policy.residency.parameters = kHost;
  }
  return both;
}

std::vector<int64_t> micro_batches(int64_t rows, int64_t most) {
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= std::min(rows, most); size *= 2) {
    if (rows % size == 0) sizes.push_back(size);
  }
  return sizes;
}

RankedPlan plan_one(PlanInput job, const models::TokenFlops& flops, const RankOptions& options) {
  RankedPlan plan{.policy = job.engine.policy,
                  .micro_batch_rows = job.micro_batch_rows,
                  .accumulation = job.accumulation,
                  .recompute = job.engine.recompute,
                  .memory = plan_memory(job),
                  .time = estimate_step(job, flops, options.card, options.cluster)};
  const int local = std::min(job.world, options.cluster.cards_per_host);
  const bool host_fits = !options.host_bytes || plan.memory.host_bytes() * local <= *options.host_bytes;
  plan.fits = plan.memory.fits(options.card.memory_bytes) && host_fits;
  return plan;
}

/// All micro-batches and recomputes of a policy.
void try_policy(const PlanInput& job, const parallel::ShardPolicy& policy, const models::TokenFlops& flops,
                const RankOptions& options, std::vector<RankedPlan>& plans) {
  const int64_t rows = job.micro_batch_rows * job.accumulation;
  for (const int64_t size : micro_batches(rows, options.max_micro_batch_rows)) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kPartial, Recompute::kBlock}) {
      PlanInput tried = job;
      tried.engine.policy = policy;
      tried.engine.recompute = recompute;
      tried.micro_batch_rows = size;
      tried.accumulation = rows / size;
      plans.push_back(plan_one(std::move(tried), flops, options));
      if (plans.back().fits) break;  // more recompute is slower and no longer needed
    }
  }
}

std::string policy_flags(const parallel::ShardPolicy& policy) {
  if (policy.name == "ddp") return "--deepspeed zero0";
  const bool offloads = policy.residency != memory::StateResidency{};
  if (policy.name.starts_with("zero")) return "--deepspeed " + policy.name + (offloads ? "_offload" : "");
  if (policy.name == "hybrid_fsdp") return "--fsdp hybrid_shard";
  return policy.name == "fsdp_shard_grad_op" ? "--fsdp shard_grad_op" : "--fsdp full_shard";
}

}  // namespace

std::string RankedPlan::flags() const {
  std::string text = policy_flags(policy);
  text += detail::concat(" --per_device_train_batch_size ", micro_batch_rows,
                         " --gradient_accumulation_steps ", accumulation);
  if (recompute == Recompute::kPartial) return text;  // what auto takes where none does not fit
  return text + " --gradient_checkpointing " + (recompute == Recompute::kBlock ? "true" : "false");
}

std::vector<RankedPlan> rank_plans(const PlanInput& job, const models::TokenFlops& flops,
                                   const RankOptions& options) {
  std::vector<RankedPlan> plans;
  for (const parallel::ShardPolicy& policy : policies(job, options))
    try_policy(job, policy, flops, options, plans);
  const bool offloads = job.engine.policy.residency != memory::StateResidency{};
  if (offloads || std::ranges::none_of(plans, &RankedPlan::fits)) {
    for (const parallel::ShardPolicy& policy : offloaded_policies())
      try_policy(job, policy, flops, options, plans);
  }
  std::ranges::stable_sort(plans, [](const RankedPlan& a, const RankedPlan& b) {
    if (a.fits != b.fits) return a.fits;
    if (!a.fits) return a.memory.total_bytes() < b.memory.total_bytes();
    return a.time.total() < b.time.total();
  });
  return plans;
}

}  // namespace apus::train
