#pragma once

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

  int replicas() const { return dp->size() / shard->size(); }

  /// One axis: every rank shards, none replicates.
  static DataParallel one_axis(comm::Communicator& dp) { return {&dp, &dp, nullptr}; }
  /// dp, dp_shard and dp_replicate of a mesh.
  static DataParallel of(const comm::DeviceMesh& mesh);
};

}  // namespace apus::parallel
