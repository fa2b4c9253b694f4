#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/base/clock.h"
#include "apus/base/env.h"
#include "apus/base/log.h"

namespace apus::launch {

/// Which ranks to start on this machine, and of what.
struct APUS_API LaunchOptions {
  /// What each rank runs.
  std::filesystem::path program = {};
  /// Its arguments, the program's own name left out.
  std::vector<std::string> arguments = {};
  /// The children's environment; ranks and the meeting point are put over it.
  Environment environment = {};
  /// Ranks on this machine.
  int nproc_per_node = 1;
  /// Machines of the job; this launcher runs once on each.
  int nnodes = 1;
  /// Which of them this is.
  int node_rank = 0;
  /// Where rank 0 runs; empty: this machine, for one node only.
  std::string master_addr = {};
  /// 0: a free one, for one node only.
  int master_port = 0;
  /// How often all ranks are started again after a failure; for one node only.
  int max_restarts = 0;
  /// Between SIGTERM and SIGKILL for the ranks that outlive a failed one.
  std::chrono::milliseconds grace = std::chrono::seconds(5);
  /// Set by the host's signal handler to the signal that came: it is passed on to all ranks. May be null.
  const std::atomic<int>* signal = nullptr;
};

/// How a group of ranks ended.
struct APUS_API LaunchResult {
  /// 0, or that of the first cause; 128 + N where signal N killed it.
  int exit_code = 0;
  /// Which rank failed first and why, to be printed last; empty if all went well.
  std::string first_cause = {};
  /// Times that the ranks were started.
  int attempts = 0;
  /// The host's signal ended a rank that did not listen for it yet, so none had come to its first step.
  bool ended_unheard = false;
};

/// Checks the numbers of a launch without starting anything.
/// Throws:      ConfigError that names the flag; NotSupported for restarts over several nodes.
APUS_API void check_counts(const LaunchOptions& options);

/// Starts the ranks of one machine as processes, watches them, and tells which failed first.
///
/// Every rank gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, NODE_RANK, MASTER_ADDR,
/// MASTER_PORT, TORCHELASTIC_RESTART_COUNT, APUS_ERROR_DIR and, unless set, OMP_NUM_THREADS; NPROC_PER_NODE
/// is taken away. With one node this process serves the ranks' store itself, as torchrun's agent does
/// (TORCHELASTIC_USE_AGENT_STORE), so that the port cannot be lost to somebody else and the store outlives a
/// killed rank 0; with several, rank 0 does. Standard input, output and error are the launcher's. Each rank
/// leads a process group of its own and is killed when the launcher's thread ends.
///
/// The first rank that fails ends the others: SIGTERM, then SIGKILL after `grace`. Its cause is, in this
/// order: the earliest error that a rank left (rank_error.h) and that is no consequence of a peer's; the
/// first rank that died without leaving one; the earliest consequence. A configuration error is not tried
/// again.
class APUS_API LocalLauncher final {
 public:
  /// `clock` must outlive the launcher; `logger` hears of threads, restarts and ranks that had to be killed.
  /// Throws:      ConfigError naming the flag if the counts make no sense or the port is in use; NotSupported
  /// for
  ///              restarts over several nodes.
  LocalLauncher(LaunchOptions options, Clock& clock, std::shared_ptr<Logger> logger);

  /// Starts all ranks and returns when all have ended.
  /// Throws:      Error if a process cannot be started (none remains).
  LaunchResult run();

 private:
  LaunchOptions options_;
  Clock& clock_;
  std::shared_ptr<Logger> logger_;
};

}  // namespace apus::launch
