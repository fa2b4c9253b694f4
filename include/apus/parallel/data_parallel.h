#pragma once

#include <memory>

#include "apus/base/api.h"
#include "apus/comm/communicator.h"
#include "apus/comm/device_mesh.h"

namespace apus::parallel {

/// The groups of ranks that the engine talks to; they outlive it.
struct APUS_API DataParallel {
  /// All data-parallel ranks, shard ranks running fastest: rows of the batch are split over it.
  comm::Communicator* dp = nullptr;
  /// Ranks that cut one set of states among them.
  comm::Communicator* shard = nullptr;
  /// Ranks that hold the same shard.
  comm::Communicator* replicate = nullptr;
  /// The ranks of `shard` in the same order as a second group, which sums gradients: the operations of one
  /// group run one after another, those of two beside each other. Null: `shard` does that too.
  comm::Communicator* reduce = nullptr;

  int replicas() const { return dp->size() / shard->size(); }
  /// Where the ranks of `shard` sum gradients.
  comm::Communicator& reduction() const { return reduce != nullptr ? *reduce : *shard; }
  /// Where all data-parallel ranks exchange gradients.
  comm::Communicator& exchange() const { return replicas() == 1 ? reduction() : *dp; }

  /// One axis: every rank shards, none replicates.
  static DataParallel one_axis(comm::Communicator& dp) { return {&dp, &dp, nullptr, nullptr}; }
  /// dp, dp_shard and dp_replicate of a mesh.
  static DataParallel of(const comm::DeviceMesh& mesh);
};

/// A second group of the ranks of `shard`, called like it with "_reduce" behind: for DataParallel::reduce.
/// Order:       all ranks make the same calls on each of the two. What runs first where both compete for a
///              device may differ between ranks, so both must fit on it at once: NCCL's kernels do.
/// Memory:      NCCL: a second set of its buffers, see docs/design/nccl.md.
/// Collectives: one subgroup of `shard`, called by every rank of it.
APUS_API std::unique_ptr<comm::Communicator> second_shard_group(const DataParallel& ranks);

}  // namespace apus::parallel
