#pragma once

#include <string>

#include "apus/base/api.h"

namespace apus::parallel {

/// Which states of a trainable parameter are cut over the data-parallel ranks.
///
/// One description for every data-parallel strategy; the named strategies below are constructions of it.
/// Parameter sharding (ZeRO-3, FSDP), replication groups and host residency join as fields of this struct.
struct APUS_API ShardPolicy {
  /// For reports and args.json.
  std::string name = "ddp";
  /// Gradients are reduce-scattered every micro-batch into the own range.
  bool grad_shard = false;
  /// Masters and moments exist for the own range only.
  bool opt_shard = false;
};

/// Data parallelism: everything replicated.
///
/// Collectives: per step one all_reduce of 4G bytes a bucket, after the last micro-batch, over the gradients
///              (G = padded trainable elements of the bucket; by default all fit one bucket).
/// Memory:      P(size) + 4P gradients + 8P moments (+ 4P masters where size < 4) for P trainable parameters.
/// Source:      Li et al., PyTorch Distributed, VLDB 2020.
struct APUS_API Ddp : ShardPolicy {
  Ddp() : ShardPolicy{.name = "ddp", .grad_shard = false, .opt_shard = false} {}
};

/// ZeRO stage 2: gradients and optimizer states cut over the ranks, parameters replicated.
///
/// Collectives: per micro-batch one reduce_scatter of 4G bytes a bucket, as the bucket's gradients complete;
///              per step one all_gather of G * size bytes a bucket, after the update.
/// Memory:      P(size) + one bucket of 4 bytes an element while it is filled
///              + (4 + 8 (+ 4 where size < 4)) P / n.
/// Source:      Rajbhandari et al., ZeRO, SC 2020, section 5. Deviation: gradients accumulate in fp32.
struct APUS_API Zero2 : ShardPolicy {
  Zero2() : ShardPolicy{.name = "zero2", .grad_shard = true, .opt_shard = true} {}
};

}  // namespace apus::parallel
