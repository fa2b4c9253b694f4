#include "apus/parallel/shard_policy.h"

#include "apus/base/error.h"

namespace apus::parallel {
namespace {

ShardPolicy fully_sharded(const char* name) {
  return {.name = name,
          .param_shard = true,
          .grad_shard = true,
          .opt_shard = true,
          .reduce = ReduceCadence::kMicroBatch};
}

std::variant<bool, int> reshard_of(FsdpSharding sharding, std::variant<bool, int> reshard) {
  if (sharding == FsdpSharding::kFullShard) return reshard;
  APUS_CHECK(std::holds_alternative<bool>(reshard), ConfigError,
             "shard_grad_op keeps parameters whole between forward and backward; reshard_after_forward ",
             std::get<int>(reshard), " contradicts it: use full_shard with that number");
  return false;
}

}  // namespace

int ShardPolicy::backward_ranks(int shard_ranks) const {
  if (const bool* reshard = std::get_if<bool>(&reshard_after_forward)) return *reshard ? shard_ranks : 1;
  return std::get<int>(reshard_after_forward);
}

bool ShardPolicy::keeps_whole(int shard_ranks) const {
  const bool* reshard = std::get_if<bool>(&reshard_after_forward);
  const bool leaves = reshard && *reshard && residency.parameters == memory::Residency::kHost;
  return backward_ranks(shard_ranks) == 1 && !leaves;
}

void ShardPolicy::check(int shard_ranks, int replicas) const {
  APUS_CHECK(!param_shard || (grad_shard && opt_shard), ConfigError, "policy ", name,
             ": sharded parameters need sharded gradients and a sharded optimizer");
  APUS_CHECK(!grad_shard || opt_shard, ConfigError, "policy ", name,
             ": sharded gradients without a sharded optimizer update nothing but the own range");
  APUS_CHECK(
      reduce == ReduceCadence::kStep || grad_shard, ConfigError, "policy ", name,
      ": reducing in every micro-batch is for sharded gradients; whole ones add up first and travel once");
  APUS_CHECK(replicate == replicas, ConfigError, "policy ", name, " keeps ", replicate,
             " copies of the shards, but the mesh has dp_replicate ", replicas, "; make the two equal");
  const bool optimizer_on_host = residency.optimizer == memory::Residency::kHost;
  APUS_CHECK(
      residency.gradients == memory::Residency::kDevice || (grad_shard && optimizer_on_host), ConfigError,
      "policy ", name,
      ": gradients on the host need sharded gradients and the optimizer on the host, which reads them; ",
      grad_shard ? "offload the optimizer too" : "use zero2, zero3 or fsdp");
  APUS_CHECK(residency.parameters == memory::Residency::kDevice || param_shard, ConfigError, "policy ", name,
             ": parameters on the host need sharded parameters, which are gathered while a unit runs; use "
             "zero3 or fsdp, or leave them on the device");
  const int backward = backward_ranks(shard_ranks);
  APUS_CHECK(backward >= 1 && backward <= shard_ranks && shard_ranks % backward == 0, ConfigError, "policy ",
             name, ": parameters are to be kept by ", backward,
             " ranks between forward and backward, which must divide the ", shard_ranks,
             " ranks of dp_shard");
}

Zero3::Zero3(int secondary_partition) : ShardPolicy(fully_sharded("zero3")) {
  APUS_CHECK(secondary_partition >= 1, ConfigError, "zero_hpz_partition_size must be at least 1, got ",
             secondary_partition);
  if (secondary_partition > 1) reshard_after_forward = secondary_partition;
}

Fsdp::Fsdp(const FsdpOptions& options) : ShardPolicy(fully_sharded("fsdp")) {
  reshard_after_forward = reshard_of(options.sharding, options.reshard_after_forward);
  if (options.sharding == FsdpSharding::kShardGradOp) name = "fsdp_shard_grad_op";
}

HybridFsdp::HybridFsdp(const HybridFsdpOptions& options) : ShardPolicy(fully_sharded("hybrid_fsdp")) {
  APUS_CHECK(options.replicate >= 1, ConfigError, "hybrid sharding needs at least 1 copy, got ",
             options.replicate);
  replicate = options.replicate;
  reshard_after_forward = reshard_of(options.sharding, options.reshard_after_forward);
}

}  // namespace apus::parallel
