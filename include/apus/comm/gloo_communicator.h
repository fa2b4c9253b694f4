#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "apus/base/api.h"
#include "apus/comm/communicator.h"

namespace apus {
class Logger;
}

namespace apus::comm {

/// The network interface that Gloo groups of one process talk through, and the reaper of groups that were
/// abandoned with work in flight. Create one a process (one for all ranks if they are threads).
/// Its destructor waits at most two seconds for abandoned work.
class APUS_API GlooDevice {
 public:
  virtual ~GlooDevice();
  /// `host`: address or name of this machine as its peers reach it. Throws CommError if it cannot be bound.
  static std::shared_ptr<GlooDevice> create(const std::string& host = "127.0.0.1");
  /// Bound to the interface that the host's own name (or GLOO's default) resolves to: several nodes.
  static std::shared_ptr<GlooDevice> create_default();
  /// Bound to a named interface ("eth0").
  static std::shared_ptr<GlooDevice> create_for_interface(const std::string& interface);
};

/// Options of GlooCommunicator::create.
struct APUS_API GlooOptions {
  int rank = 0;
  int size = 1;
  std::string name = "world";
  std::chrono::milliseconds timeout =
      std::chrono::minutes(30);        ///< deadline of each operation (`--ddp_timeout`)
  std::shared_ptr<GlooDevice> device;  ///< null: a loopback device of its own
  std::shared_ptr<Logger> logger;      ///< null: silent
};

/// Collectives on the CPU, over c10d's ProcessGroupGloo.
///
/// Stream:      none; each group runs its operations in order on one background thread.
/// Failure:     Gloo cannot abort. Waiting polls the work, a flag and (every 50 ms) the store's abort key; a
///              group abandoned with work in flight is handed to the device's reaper together with its
///              tensors. An operation past its deadline aborts the job with one report: rank, group,
///              operation, sequence, shape, the note, and the ranks that did not arrive.
/// Determinism: reduce_scatter is an all_to_all and a local sum in rank order: the same bits however a buffer
///              is cut. all_reduce is Gloo's; bfloat16 and half are summed in fp32 and rounded once.
class APUS_API GlooCommunicator {
 public:
  /// Connects to all peers.
  /// Collectives: every rank of the group calls it with the same name and store. A group of one needs no
  ///              device and no peers.
  /// Throws:      ConfigError if rank or size make no sense; CommError naming the ranks that did not appear.
  static std::unique_ptr<Communicator> create(std::shared_ptr<Store> store, const GlooOptions& options);
};

}  // namespace apus::comm
