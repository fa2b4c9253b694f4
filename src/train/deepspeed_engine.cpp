// From a DeepSpeed configuration to the engine's options.
#include <algorithm>
#include <string>
#include <variant>

#include "apus/base/error.h"
#include "train/deepspeed_config.h"

namespace apus::train {
namespace {

using memory::Residency;

/// Host or device; older spellings (cpu_offload) count where the section says nothing.
Residency residency_of(const DeepspeedConfig& config, const std::string& section, const char* old) {
  const std::string path = "zero_optimization." + section + ".device";
  const std::string old_path = "zero_optimization." + std::string(old);
  const std::optional<bool> was = config.boolean(old_path);
  const std::string device = config.text(path).value_or(was == true ? "cpu" : "none");
  APUS_CHECK(!was || !config.has(path) || *was == (device != "none"), ConfigError, config.source(), ": ",
             path, " ", device, " and ", old_path, *was ? " true" : " false",
             " contradict each other: leave the older key out");
  if (device == "nvme") {
    throw NotSupported(
        detail::concat(config.source(), ": ", path, " nvme is not supported: host memory is, device cpu"));
  }
  APUS_CHECK(device == "cpu" || device == "none", ConfigError, config.source(), ": ", path, " ", device,
             " is not one of none, cpu");
  return device == "cpu" ? Residency::kHost : Residency::kDevice;
}

int64_t stage_of(const DeepspeedConfig& config) {
  const auto stage = config.integer("zero_optimization.stage");
  APUS_CHECK(stage.value_or(0) <= 3, ConfigError, config.source(), ": zero_optimization.stage is ", *stage,
             "; DeepSpeed's stages are 0, 1, 2 and 3");
  return stage.value_or(0);
}

parallel::ShardPolicy policy_of_stage(int64_t stage, int64_t partition) {
  if (stage == 1) return parallel::Zero1();
  if (stage == 2) return parallel::Zero2();
  if (stage == 3) return parallel::Zero3(static_cast<int>(partition));
  return parallel::Ddp();
}

void need_stage(const DeepspeedConfig& config, const char* what, int64_t stage, int64_t least) {
  APUS_CHECK(stage >= least, ConfigError, config.source(), ": ", what, " needs zero_optimization.stage ",
             least == 3 ? "3" : "1, 2 or 3", ", and the stage is ", stage);
}

}  // namespace

parallel::ShardPolicy shard_policy(const DeepspeedConfig& config) {
  const int64_t stage = stage_of(config);
  const int64_t partition =
      std::max<int64_t>(1, config.integer("zero_optimization.zero_hpz_partition_size").value_or(1));
  if (partition > 1) need_stage(config, "zero_optimization.zero_hpz_partition_size", stage, 3);
  APUS_CHECK(partition <= 65'536, ConfigError, config.source(),
             ": zero_optimization.zero_hpz_partition_size is ", partition, ", more ranks than there are");
  parallel::ShardPolicy policy = policy_of_stage(stage, partition);
  memory::StateResidency& residency = policy.residency;
  residency.optimizer = residency_of(config, "offload_optimizer", "cpu_offload");
  residency.parameters = residency_of(config, "offload_param", "cpu_offload_param");
  if (residency.optimizer == Residency::kHost) {
    need_stage(config, "zero_optimization.offload_optimizer device cpu", stage, 1);
    // DeepSpeed moves gradients with the optimizer from stage 2 on. Under stage 2 every micro-batch would
    // send all of them over the bus (3.7 x the time of a step on an H200), so there they stay and travel once
    // a step.
    if (policy.param_shard) residency.gradients = Residency::kHost;
  }
  if (residency.parameters == Residency::kHost)
    need_stage(config, "zero_optimization.offload_param device cpu", stage, 3);
  return policy;
}

void check_secondary_partition(const DeepspeedConfig& config, int world) {
  const parallel::ShardPolicy policy = shard_policy(config);
  const int* partition = std::get_if<int>(&policy.reshard_after_forward);
  APUS_CHECK(!partition || world % *partition == 0, ConfigError, config.source(),
             ": zero_optimization.zero_hpz_partition_size ", partition ? *partition : 1,
             " does not divide the ", world, " ranks evenly; take a divisor of ", world);
}

void tell_engine(const DeepspeedConfig& config, parallel::ShardedModelOptions& engine) {
  const auto reduce = config.integer("zero_optimization.reduce_bucket_size", 1),
             gather = config.integer("zero_optimization.allgather_bucket_size", 1);
  // One group of parameters is the bucket of both.
  if (reduce || gather)
    engine.bucket_elements = std::min(reduce.value_or(INT64_MAX), gather.value_or(INT64_MAX));
  engine.overlap_comm = config.boolean("zero_optimization.overlap_comm").value_or(engine.overlap_comm);
  if (config.boolean("activation_checkpointing.cpu_checkpointing").value_or(false))
    engine.activations = memory::Residency::kHost;
}

}  // namespace apus::train
