#pragma once

#include <string>
#include <variant>

#include "apus/base/api.h"
#include "apus/comm/device_mesh.h"
#include "apus/memory/residency.h"

namespace apus::parallel {

/// When gradients travel.
enum class ReduceCadence {
  kStep,        ///< once, in the last micro-batch of a step; until then they add up on each rank, whole
  kMicroBatch,  ///< in every micro-batch, so that only the own range adds up
};

/// Which states are cut over the ranks of dp_shard, and what travels when: one description for every
/// data-parallel strategy. The named strategies below are constructions of it; any consistent filling works.
///
/// In the strategies' contracts: n ranks in dp_shard, a micro-batches a step, G padded elements of a group
/// (its parameters each to 128, its units to 1,024, the whole to n x 1,024), P trainable parameters, size =
/// bytes of the compute dtype, F bytes of frozen parameters. Bytes are what a rank hands over: the input of a
/// reduction, the output of an all_gather. One group is a bucket of neighbouring units (ShardedModelOptions::
/// bucket_elements), or one unit where parameters are sharded; adapters of a whole model are a bucket under
/// every policy. All sums and masters are fp32 unless the options say otherwise (g = bytes of reduce_dtype).
struct APUS_API ShardPolicy {
  /// For reports and args.json.
  std::string name = "ddp";
  /// Parameters (frozen ones too) exist whole only while a unit runs.
  bool param_shard = false;
  /// The accumulated gradient exists for the own range only.
  bool grad_shard = false;
  /// Masters and moments exist for the own range only.
  bool opt_shard = false;
  /// Copies of the shards: the mesh's dp_replicate.
  int replicate = 1;
  /// param_shard only. Between a unit's forward and its backward the parameters are kept by: true: all ranks
  /// of dp_shard, a range each; false: every rank whole; a number m: each m neighbouring ranks, a range each
  /// (FSDP2's reshard_after_forward as a number, ZeRO++'s secondary partition).
  std::variant<bool, int> reshard_after_forward = true;
  /// kStep keeps whole gradients in fp32 during the step, for 1/a of the traffic.
  ReduceCadence reduce = ReduceCadence::kStep;
  /// What lies on the host between its uses (offload; docs/design/offload.md). The same bits where the engine
  /// computes on the CPU anyway.
  memory::StateResidency residency = {};

  /// Ranks that share a unit's parameters between forward and backward, in an axis of `shard_ranks`.
  int backward_ranks(int shard_ranks) const;
  /// Every rank keeps a unit's parameters whole from forward to backward. One rank that reshards does so too,
  /// as it shares them with nobody, unless they lie on the host and so leave the device.
  bool keeps_whole(int shard_ranks) const;
  /// Throws ConfigError if the fields contradict each other or do not fit `shard_ranks` x `replicas`.
  void check(int shard_ranks, int replicas) const;
  /// The mesh that the policy needs in a world of its own.
  comm::MeshOptions mesh() const { return {.dp_replicate = replicate}; }
};

/// Data parallelism: everything replicated.
///
/// Collectives: per step one all_reduce of gG bytes a group, after the last micro-batch.
/// Memory:      P size + 4P gradients + 8P moments (+ 4P masters where size < 4) + F.
/// Source:      Li et al., PyTorch Distributed, VLDB 2020.
struct APUS_API Ddp : ShardPolicy {
  Ddp() : ShardPolicy{.name = "ddp"} {}
};

/// ZeRO stage 1: masters and moments cut over the ranks.
///
/// Collectives: per step one reduce_scatter of gG bytes a group, after the last micro-batch, and one
///              all_gather of G size bytes a group, after the update.
/// Memory:      P size + 4P gradients + (8 (+ 4 where size < 4)) P / n + F.
/// Source:      Rajbhandari et al., ZeRO, SC 2020, section 5.1.
struct APUS_API Zero1 : ShardPolicy {
  Zero1() : ShardPolicy{.name = "zero1", .opt_shard = true} {}
};

/// ZeRO stage 2: gradients and optimizer states cut over the ranks, parameters replicated.
///
/// Collectives: per micro-batch one reduce_scatter of gG bytes a group, as the group's gradients complete;
///              per step one all_gather of G size bytes a group, after the update.
/// Memory:      P size + (4 + 8 (+ 4 where size < 4)) P / n + F
///              + up to three groups of 4 bytes an element: one being filled, two being reduced.
/// Source:      Rajbhandari et al., ZeRO, SC 2020, section 5. Deviation: gradients accumulate in fp32.
struct APUS_API Zero2 : ShardPolicy {
  Zero2()
      : ShardPolicy{
            .name = "zero2", .grad_shard = true, .opt_shard = true, .reduce = ReduceCadence::kMicroBatch} {}
};

/// ZeRO stage 3: parameters too. A unit's parameters are gathered before its forward and again before its
/// backward, with the next unit's under way meanwhile.
///
/// Collectives: per micro-batch a reduce_scatter of gG bytes a group, and all_gathers of each unit's
///              parameters in forward and in backward (G size, frozen ones their padded bytes); the last
///              block and the head are gathered once, as they are kept from forward to backward. Nothing
///              after the update. A trainable group that is not sharded (adapters) behaves as under Zero2.
/// Memory:      (size + 4 + 8 (+ 4 where size < 4)) P / n + F / n + two slots of the largest block
///              + embedding and head while they are gathered
///              + up to three units of 4 bytes an element: gradients being filled (one) or reduced (two).
/// Source:      Rajbhandari et al., ZeRO, SC 2020, section 5.3; partitions of ZeRO++ (Wang et al., 2023) by
///              secondary_partition. Deviation: the secondary partition is bf16 or fp32, not quantised.
struct APUS_API Zero3 : ShardPolicy {
  /// `secondary_partition`: zero_hpz_partition_size; ranks that keep a second copy for backward among them; 1
  /// = none.
  explicit Zero3(int secondary_partition = 1);
};

/// What FSDP cuts, in its own words.
enum class FsdpSharding {
  kFullShard,    ///< parameters resharded between forward and backward
  kShardGradOp,  ///< parameters kept from forward to backward, sharded outside of them
};

/// Settings of Fsdp.
struct APUS_API FsdpOptions {
  FsdpSharding sharding = FsdpSharding::kFullShard;
  /// As ShardPolicy's; kShardGradOp stands for false.
  std::variant<bool, int> reshard_after_forward = true;
};

/// Fully sharded data parallelism: Zero3 under FSDP's names, and with its choices between memory and traffic.
///
/// Collectives: as Zero3; with reshard_after_forward false (or kShardGradOp) no gathers in backward; with m,
///              those of backward go over m neighbouring ranks.
/// Memory:      as Zero3; with false + all blocks' gathered parameters between forward and backward; with m
///              + the parameters' bytes / m there.
/// Source:      Zhao et al., PyTorch FSDP, VLDB 2023; FSDP2's fully_shard.
/// Throws:      ConfigError for kShardGradOp with a number.
struct APUS_API Fsdp : ShardPolicy {
  explicit Fsdp(const FsdpOptions& options = {});
};

/// Settings of HybridFsdp.
struct APUS_API HybridFsdpOptions {
  int replicate = 2;  ///< copies of the shards: the mesh's dp_replicate
  FsdpSharding sharding = FsdpSharding::kFullShard;
  std::variant<bool, int> reshard_after_forward = true;
};

/// Hybrid sharding: Fsdp inside each of `replicate` groups of ranks (a machine, say), data parallelism
/// between them.
///
/// Collectives: as Fsdp over the n ranks of dp_shard; per step one all_reduce of 4G/n bytes a group over
///              dp_replicate, in the last micro-batch.
/// Memory:      as Fsdp with n = world / replicate.
/// Source:      Zhao et al., PyTorch FSDP, VLDB 2023, section 3.2.2.
struct APUS_API HybridFsdp : ShardPolicy {
  explicit HybridFsdp(const HybridFsdpOptions& options = {});
};

}  // namespace apus::parallel
