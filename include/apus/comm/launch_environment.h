#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/comm/store.h"

namespace apus {
class Environment;
}

namespace apus::comm {

/// Who told this process its rank.
enum class LaunchSource {
  /// Nobody: one process.
  kSingle,
  /// NPROC_PER_NODE > 1 without RANK: this process shall start the ranks.
  kSpawn,
  /// RANK and WORLD_SIZE (torchrun, apus launch, or by hand).
  kTorchrun,
  /// SLURM_PROCID and SLURM_NTASKS of a job step.
  kSlurm,
  /// OMPI_COMM_WORLD_*.
  kOpenMpi,
  /// PMI_RANK and PMI_SIZE (MPICH, Intel MPI).
  kPmi,
};

/// "torchrun", "Slurm", ...
APUS_API std::string launch_source_name(LaunchSource source);

/// This process's place in the job, and where its ranks meet. Torch-free.
struct APUS_API LaunchEnvironment {
  /// Of all ranks of the job.
  int rank = 0;
  int world_size = 1;
  /// Of this node's ranks: the device is this one of CUDA_VISIBLE_DEVICES.
  int local_rank = 0;
  int local_world_size = 1;
  /// Of the job's nodes.
  int node_rank = 0;
  /// Where rank 0 (or torchrun's agent) serves the store.
  std::string master_addr = "127.0.0.1";
  /// 0: chosen by whoever serves; only for one node.
  int master_port = 0;
  /// The store is served by torchrun's agent: every rank is a client.
  bool use_agent_store = false;
  /// Attempt, from torchrun or apus launch.
  int restart_count = 0;
  /// Of the job, for messages.
  std::string run_id = "none";
  /// Who said all this.
  LaunchSource source = LaunchSource::kSingle;
  /// Ranks to start on this node, for kSpawn.
  int spawn = 0;

  /// Whether there are ranks to meet.
  bool distributed() const { return world_size > 1; }
};

/// Reads the launcher's variables.
/// Order:       RANK and WORLD_SIZE (then NPROC_PER_NODE is ignored), NPROC_PER_NODE > 1, Open MPI, a Slurm
///              step, PMI, else one process.
/// Throws:      ConfigError that names the variable: RANK without WORLD_SIZE, not a number, rank outside the
///              world, several nodes without MASTER_ADDR.
APUS_API LaunchEnvironment resolve_launch(const Environment& environment);

/// The first host of Slurm's compact list: "gpu[07-09,12],cpu1" -> "gpu07".
/// Throws:      ConfigError if the list is empty or a bracket is not closed.
APUS_API std::string first_slurm_host(const std::string& list);

/// The port that ranks of one Slurm job agree on without talking: 20000 + job id mod 20000.
APUS_API int slurm_port(int64_t job_id);

/// Options of rendezvous().
struct APUS_API RendezvousOptions {
  /// `--ddp_timeout`; for ranks to appear.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// How long the store's destructor on rank 0 waits for the others' to have run: they may still want to read why
  /// the job has ended. Not with torchrun's store, which outlives the ranks.
  std::chrono::milliseconds linger = std::chrono::seconds(2);
};

/// The store that all ranks of the job share: rank 0 serves it, or torchrun's agent does; keys are put under
/// this attempt's prefix, so that a restarted job does not read the failed one's.
/// Throws:      ConfigError if the port is in use; CommError naming the address if nobody serves it in time.
APUS_API std::shared_ptr<Store> rendezvous(const LaunchEnvironment& launch,
                                           const RendezvousOptions& options = {});

}  // namespace apus::comm
