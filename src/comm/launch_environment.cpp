#include "apus/comm/launch_environment.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "apus/base/env.h"
#include "apus/base/error.h"
#include "comm/slurm.h"

namespace apus::comm {
namespace {

constexpr int kDefaultPort = 29500;
constexpr int kMostRanks = 1'000'000;

/// An integer variable that must be there and at least `least`; `why` says who needs it.
int required(const Environment& env, std::string_view name, int64_t least, const char* why) {
  const std::optional<int64_t> value = env.get_int(name);
  APUS_CHECK(value.has_value(), ConfigError, name, " is not set, but ", why, " is: set both or neither");
  APUS_CHECK(*value >= least && *value <= 1'000'000, ConfigError, name, "=", *value, ": expected ", least,
             " or more");
  return static_cast<int>(*value);
}

int integer_or(const Environment& env, std::string_view name, int fallback, int64_t least = 0) {
  const std::optional<int64_t> value = env.get_int(name);
  if (!value) return fallback;
  APUS_CHECK(*value >= least && *value <= 1'000'000, ConfigError, name, "=", *value, ": expected ", least,
             " or more");
  return static_cast<int>(*value);
}

bool filled(const Environment& env, std::string_view name) {
  return !env.get_or(name, "").empty();
}

/// The first of these variables that is filled, for its name.
std::string_view first_filled(const Environment& env, std::initializer_list<std::string_view> names) {
  for (std::string_view name : names) {
    if (filled(env, name)) return name;
  }
  return *names.begin();
}

void check_ranks(const LaunchEnvironment& launch, std::string_view rank_name, std::string_view size_name,
                 std::string_view local_name) {
  APUS_CHECK(launch.rank < launch.world_size, ConfigError, rank_name, "=", launch.rank, " is not below ",
             size_name, "=", launch.world_size);
  APUS_CHECK(launch.local_world_size >= 1 && launch.local_world_size <= launch.world_size, ConfigError,
             "this node has ", launch.local_world_size, " ranks of a world of ", launch.world_size, " (",
             size_name, "): expected 1 to ", launch.world_size);
  APUS_CHECK(launch.local_rank < launch.local_world_size, ConfigError, local_name, "=", launch.local_rank,
             " is not below the ", launch.local_world_size, " ranks of this node");
}

/// MASTER_ADDR and MASTER_PORT over what the launcher suggests; one node needs no address.
void set_master(const Environment& env, std::string suggested_addr, int suggested_port,
                LaunchEnvironment& launch) {
  if (suggested_addr.empty() && launch.local_world_size == launch.world_size) suggested_addr = "127.0.0.1";
  launch.master_addr = filled(env, "MASTER_ADDR") ? env.get_or("MASTER_ADDR", "") : suggested_addr;
  APUS_CHECK(!launch.master_addr.empty(), ConfigError, "MASTER_ADDR is not set, but the ", launch.world_size,
             " ranks are on several nodes (", launch.local_world_size,
             " on this one): set it to the host name of rank 0");
  launch.master_port = integer_or(env, "MASTER_PORT", suggested_port);
  APUS_CHECK(launch.master_port > 0 && launch.master_port <= 65535, ConfigError,
             "MASTER_PORT=", launch.master_port, ": expected 1 to 65535");
}

LaunchEnvironment from_torchrun(const Environment& env) {
  LaunchEnvironment launch;
  launch.source = LaunchSource::kTorchrun;
  launch.rank = required(env, "RANK", 0, "WORLD_SIZE");
  launch.world_size = required(env, "WORLD_SIZE", 1, "RANK");
  launch.local_world_size = integer_or(env, "LOCAL_WORLD_SIZE", launch.world_size);
  launch.local_rank = integer_or(env, "LOCAL_RANK", launch.rank % std::max(1, launch.local_world_size));
  check_ranks(launch, "RANK", "WORLD_SIZE", "LOCAL_RANK");
  launch.node_rank =
      integer_or(env, first_filled(env, {"GROUP_RANK", "NODE_RANK"}), launch.rank / launch.local_world_size);
  set_master(env, "", kDefaultPort, launch);
  launch.use_agent_store = env.get_bool("TORCHELASTIC_USE_AGENT_STORE").value_or(false);
  launch.restart_count = integer_or(env, "TORCHELASTIC_RESTART_COUNT", 0);
  launch.run_id = env.get_or("TORCHELASTIC_RUN_ID", "none");
  return launch;
}

bool in_slurm_step(const Environment& env) {
  if (!filled(env, "SLURM_PROCID")) return false;
  if (!filled(env, "SLURM_STEP_NUM_TASKS") && !filled(env, "SLURM_NTASKS")) return false;
  // The batch script itself has the job's variables too, but is no task of a step.
  return filled(env, "SLURM_STEP_ID") || env.get_or("ENVIRONMENT", "") != "BATCH";
}

LaunchEnvironment from_slurm(const Environment& env) {
  LaunchEnvironment launch;
  launch.source = LaunchSource::kSlurm;
  const std::string_view size_name = first_filled(env, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  launch.rank = required(env, "SLURM_PROCID", 0, "SLURM_NTASKS");
  launch.world_size = required(env, size_name, 1, "SLURM_PROCID");
  launch.node_rank = integer_or(env, "SLURM_NODEID", 0);
  const std::string_view tasks_name =
      first_filled(env, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"});
  const int nodes = integer_or(env, first_filled(env, {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}), 1);
  launch.local_world_size =
      filled(env, tasks_name) ? slurm_tasks_on_node(tasks_name, env.get_or(tasks_name, ""), launch.node_rank)
                              : (launch.world_size + std::max(1, nodes) - 1) / std::max(1, nodes);
  launch.local_world_size = std::min(launch.local_world_size, launch.world_size);
  launch.local_rank = integer_or(env, "SLURM_LOCALID", launch.rank % launch.local_world_size);
  check_ranks(launch, "SLURM_PROCID", size_name, "SLURM_LOCALID");
  const std::string_view hosts =
      first_filled(env, {"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"});
  const bool one_node = launch.local_world_size == launch.world_size;
  const std::string_view job = first_filled(env, {"SLURM_JOB_ID", "SLURM_JOBID"});
  const std::optional<int64_t> job_id = env.get_int(job);
  set_master(env, one_node || !filled(env, hosts) ? "" : first_slurm_host(env.get_or(hosts, "")),
             job_id ? slurm_port(*job_id) : kDefaultPort, launch);
  launch.restart_count = integer_or(env, "SLURM_RESTART_COUNT", 0);
  launch.run_id = env.get_or(job, "none");
  return launch;
}

LaunchEnvironment from_open_mpi(const Environment& env) {
  LaunchEnvironment launch;
  launch.source = LaunchSource::kOpenMpi;
  launch.rank = required(env, "OMPI_COMM_WORLD_RANK", 0, "OMPI_COMM_WORLD_SIZE");
  launch.world_size = required(env, "OMPI_COMM_WORLD_SIZE", 1, "OMPI_COMM_WORLD_RANK");
  launch.local_world_size = integer_or(env, "OMPI_COMM_WORLD_LOCAL_SIZE", launch.world_size);
  launch.local_rank =
      integer_or(env, "OMPI_COMM_WORLD_LOCAL_RANK", launch.rank % std::max(1, launch.local_world_size));
  check_ranks(launch, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK");
  launch.node_rank = launch.rank / launch.local_world_size;
  set_master(env, "", kDefaultPort, launch);
  return launch;
}

LaunchEnvironment from_pmi(const Environment& env) {
  LaunchEnvironment launch;
  launch.source = LaunchSource::kPmi;
  launch.rank = required(env, "PMI_RANK", 0, "PMI_SIZE");
  launch.world_size = required(env, "PMI_SIZE", 1, "PMI_RANK");
  const std::string_view local_size = first_filled(env, {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"});
  const std::string_view local_rank = first_filled(env, {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"});
  launch.local_world_size = integer_or(env, local_size, launch.world_size);
  launch.local_rank = integer_or(env, local_rank, launch.rank % std::max(1, launch.local_world_size));
  check_ranks(launch, "PMI_RANK", "PMI_SIZE", local_rank);
  launch.node_rank = launch.rank / launch.local_world_size;
  set_master(env, "", kDefaultPort, launch);
  return launch;
}

/// What the launchers say, apart from NPROC_PER_NODE.
LaunchEnvironment from_launcher(const Environment& env) {
  if (filled(env, "OMPI_COMM_WORLD_RANK") || filled(env, "OMPI_COMM_WORLD_SIZE")) return from_open_mpi(env);
  const bool pmi = filled(env, "PMI_RANK") && filled(env, "PMI_SIZE");
  // srun --mpi=pmi2 sets both alike; Hydra inside a Slurm job starts its own ranks, one Slurm task a node.
  if (in_slurm_step(env)) {
    LaunchEnvironment slurm = from_slurm(env);
    if (!pmi || env.get_int("PMI_SIZE") == slurm.world_size) return slurm;
  }
  return pmi ? from_pmi(env) : LaunchEnvironment{};
}

/// This process starts `spawn` ranks on its node; a launcher with one task a node gives the nodes.
LaunchEnvironment from_nproc(const Environment& env, int spawn, const LaunchEnvironment& nodes) {
  LaunchEnvironment launch;
  launch.source = LaunchSource::kSpawn;
  launch.spawn = spawn;
  launch.local_world_size = spawn;
  const int node_count = integer_or(env, "NNODES", nodes.world_size, 1);
  launch.node_rank = integer_or(env, "NODE_RANK", node_count > 1 ? nodes.rank : 0);
  APUS_CHECK(launch.node_rank < node_count, ConfigError, "NODE_RANK=", launch.node_rank,
             " is not below NNODES=", node_count);
  const int64_t world_size = int64_t{spawn} * node_count;
  APUS_CHECK(world_size <= kMostRanks, ConfigError, "NPROC_PER_NODE=", spawn, " on each of ", node_count,
             " nodes are ", world_size, " ranks: expected at most ", kMostRanks);
  launch.world_size = static_cast<int>(world_size);
  launch.rank = spawn * launch.node_rank;
  const bool one_node = node_count == 1;
  if (one_node && !filled(env, "MASTER_PORT")) return launch;  // the launcher takes a free port
  const bool known = nodes.source != LaunchSource::kSingle && !one_node;
  set_master(env, known ? nodes.master_addr : "", known ? nodes.master_port : kDefaultPort, launch);
  return launch;
}

}  // namespace

std::string launch_source_name(LaunchSource source) {
  switch (source) {
    case LaunchSource::kSingle:
      return "one process";
    case LaunchSource::kSpawn:
      return "NPROC_PER_NODE";
    case LaunchSource::kTorchrun:
      return "torchrun";
    case LaunchSource::kSlurm:
      return "Slurm";
    case LaunchSource::kOpenMpi:
      return "Open MPI";
    case LaunchSource::kPmi:
      return "PMI";
  }
  APUS_ASSERT(false, "unknown LaunchSource ", static_cast<int>(source));
}

LaunchEnvironment resolve_launch(const Environment& environment) {
  if (filled(environment, "RANK") || filled(environment, "WORLD_SIZE")) return from_torchrun(environment);
  const LaunchEnvironment launcher = from_launcher(environment);
  const int spawn = integer_or(environment, "NPROC_PER_NODE", 1, 1);
  // Several tasks on this node already: as with torchrun, NPROC_PER_NODE is a left-over.
  const bool started = launcher.local_world_size > 1;
  return spawn > 1 && !started ? from_nproc(environment, spawn, launcher) : launcher;
}

}  // namespace apus::comm
