#pragma once

#include <vector>

#include "apus/parallel/shard_policy.h"

/// The data-parallel policies that tests run.
namespace apus::testing {

/// Every named policy, and a secondary partition, in one order.
inline std::vector<parallel::ShardPolicy> all_policies() {
  return {parallel::Ddp(),
          parallel::Zero1(),
          parallel::Zero2(),
          parallel::Zero3(),
          parallel::Fsdp(),
          parallel::Fsdp({.sharding = parallel::FsdpSharding::kShardGradOp}),
          parallel::HybridFsdp({.replicate = 2}),
          parallel::Zero3(/*secondary_partition=*/2)};
}

/// Whether `world` ranks can run a policy as something of its own: 2 x 2 ranks need four, and two ranks that
/// keep a secondary copy among them are not all of the world.
inline bool fits_world(const parallel::ShardPolicy& policy, int world) {
  const bool has_number = std::holds_alternative<int>(policy.reshard_after_forward);
  return (policy.replicate == 1 && !has_number) || world == 4;
}

inline std::vector<parallel::ShardPolicy> policies_for(int world) {
  std::vector<parallel::ShardPolicy> fitting;
  for (parallel::ShardPolicy& policy : all_policies()) {
    if (fits_world(policy, world)) fitting.push_back(std::move(policy));
  }
  return fitting;
}

}  // namespace apus::testing
