#include "apus/comm/launch_environment.h"

#include <gtest/gtest.h>

#include "apus/base/env.h"
#include "apus/base/error.h"

namespace apus::comm {
namespace {

LaunchEnvironment resolve(Environment::Map variables) {
  return resolve_launch(Environment(std::move(variables)));
}

void expect_config_error(Environment::Map variables, const std::string& part) {
  try {
    resolve(std::move(variables));
    FAIL() << "expected ConfigError with: " << part;
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(ResolveLaunch, NothingMeansOneProcess) {
  const LaunchEnvironment launch = resolve({});
  EXPECT_EQ(launch.source, LaunchSource::kSingle);
  EXPECT_EQ(launch.world_size, 1);
  EXPECT_FALSE(launch.distributed());
}

TEST(ResolveLaunch, TorchrunWithTheAgentsStore) {
  const LaunchEnvironment launch = resolve({{"RANK", "5"},
                                            {"WORLD_SIZE", "8"},
                                            {"LOCAL_RANK", "1"},
                                            {"LOCAL_WORLD_SIZE", "4"},
                                            {"GROUP_RANK", "1"},
                                            {"MASTER_ADDR", "gpu01"},
                                            {"MASTER_PORT", "12345"},
                                            {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                            {"TORCHELASTIC_RESTART_COUNT", "2"},
                                            {"TORCHELASTIC_RUN_ID", "job"}});
  EXPECT_EQ(launch.source, LaunchSource::kTorchrun);
  EXPECT_EQ(launch.rank, 5);
  EXPECT_EQ(launch.world_size, 8);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.local_world_size, 4);
  EXPECT_EQ(launch.node_rank, 1);
  EXPECT_EQ(launch.master_addr, "gpu01");
  EXPECT_EQ(launch.master_port, 12345);
  EXPECT_TRUE(launch.use_agent_store);
  EXPECT_EQ(launch.restart_count, 2);
  EXPECT_EQ(launch.run_id, "job");
}

TEST(ResolveLaunch, NprocPerNodeIsIgnoredUnderTorchrun) {
  const LaunchEnvironment launch = resolve({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"NPROC_PER_NODE", "4"}});
  EXPECT_EQ(launch.source, LaunchSource::kTorchrun);
  EXPECT_EQ(launch.world_size, 2);
  EXPECT_EQ(launch.spawn, 0);
}

TEST(ResolveLaunch, RankAndWorldSizeAloneMeanOneNodeAtTheUsualPort) {
  const LaunchEnvironment launch = resolve({{"RANK", "3"}, {"WORLD_SIZE", "4"}});
  EXPECT_EQ(launch.local_rank, 3);
  EXPECT_EQ(launch.local_world_size, 4);
  EXPECT_EQ(launch.master_addr, "127.0.0.1");
  EXPECT_EQ(launch.master_port, 29500);
  EXPECT_FALSE(launch.use_agent_store);
}

TEST(ResolveLaunch, BrokenTorchrunVariablesAreNamed) {
  expect_config_error({{"RANK", "1"}}, "WORLD_SIZE is not set");
  expect_config_error({{"WORLD_SIZE", "4"}}, "RANK is not set");
  expect_config_error({{"RANK", "x"}, {"WORLD_SIZE", "4"}}, "RANK");
  expect_config_error({{"RANK", "4"}, {"WORLD_SIZE", "4"}}, "RANK=4 is not below WORLD_SIZE=4");
  expect_config_error({{"RANK", "-1"}, {"WORLD_SIZE", "4"}}, "RANK=-1");
  expect_config_error({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}},
                      "LOCAL_RANK=2");
  expect_config_error({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}},
                      "MASTER_ADDR is not set");
  expect_config_error({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "99999"}}, "MASTER_PORT=99999");
  expect_config_error({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_USE_AGENT_STORE", "maybe"}},
                      "TORCHELASTIC_USE_AGENT_STORE");
}

TEST(ResolveLaunch, NprocPerNodeSpawnsRanks) {
  const LaunchEnvironment launch = resolve({{"NPROC_PER_NODE", "4"}});
  EXPECT_EQ(launch.source, LaunchSource::kSpawn);
  EXPECT_EQ(launch.spawn, 4);
  EXPECT_EQ(launch.world_size, 4);
  EXPECT_EQ(launch.master_port, 0);  // chosen by whoever starts them
  EXPECT_EQ(resolve({{"NPROC_PER_NODE", "1"}}).source, LaunchSource::kSingle);
  for (const char* wrong : {"0", "-1"}) {
    const std::string message = std::string("NPROC_PER_NODE=") + wrong + ": expected 1 or more";
    expect_config_error({{"NPROC_PER_NODE", wrong}}, message.c_str());
  }
  expect_config_error({{"NPROC_PER_NODE", "four"}}, "NPROC_PER_NODE");
}

TEST(ResolveLaunch, NprocPerNodeOverSeveralNodes) {
  const LaunchEnvironment launch = resolve({{"NPROC_PER_NODE", "4"},
                                            {"NNODES", "2"},
                                            {"NODE_RANK", "1"},
                                            {"MASTER_ADDR", "gpu01"},
                                            {"MASTER_PORT", "29501"}});
  EXPECT_EQ(launch.world_size, 8);
  EXPECT_EQ(launch.rank, 4);
  EXPECT_EQ(launch.node_rank, 1);
  EXPECT_EQ(launch.master_addr, "gpu01");
  EXPECT_EQ(launch.master_port, 29501);
  expect_config_error({{"NPROC_PER_NODE", "4"}, {"NNODES", "2"}, {"NODE_RANK", "0"}}, "MASTER_ADDR");
  expect_config_error({{"NPROC_PER_NODE", "4"}, {"NNODES", "2"}, {"NODE_RANK", "2"}}, "NODE_RANK=2");
  expect_config_error({{"NPROC_PER_NODE", "65536"}, {"NNODES", "65536"}, {"MASTER_ADDR", "a"}},
                      "NPROC_PER_NODE=65536 on each of 65536 nodes are 4294967296 ranks");
}

Environment::Map slurm_step() {
  return {{"SLURM_PROCID", "5"},
          {"SLURM_NTASKS", "8"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_NODEID", "1"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
          {"SLURM_STEP_NODELIST", "gpu[07-08]"},
          {"SLURM_JOB_ID", "1234567"}};
}

TEST(ResolveLaunch, ASlurmStep) {
  const LaunchEnvironment launch = resolve(slurm_step());
  EXPECT_EQ(launch.source, LaunchSource::kSlurm);
  EXPECT_EQ(launch.rank, 5);
  EXPECT_EQ(launch.world_size, 8);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.local_world_size, 4);
  EXPECT_EQ(launch.node_rank, 1);
  EXPECT_EQ(launch.master_addr, "gpu07");
  EXPECT_EQ(launch.master_port, slurm_port(1234567));
}

TEST(ResolveLaunch, MasterVariablesWinOverSlurms) {
  Environment::Map variables = slurm_step();
  variables["MASTER_ADDR"] = "head";
  variables["MASTER_PORT"] = "4000";
  const LaunchEnvironment launch = resolve(variables);
  EXPECT_EQ(launch.master_addr, "head");
  EXPECT_EQ(launch.master_port, 4000);
}

TEST(ResolveLaunch, ASlurmStepOnOneNodeMeetsAtLoopback) {
  const LaunchEnvironment launch = resolve(
      {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_NODELIST", "gpu03"}, {"SLURM_STEP_ID", "1"}});
  EXPECT_EQ(launch.local_world_size, 4);
  EXPECT_EQ(launch.master_addr, "127.0.0.1");
}

TEST(ResolveLaunch, TheBatchScriptIsNoTask) {
  const Environment::Map batch = {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"ENVIRONMENT", "BATCH"}};
  EXPECT_EQ(resolve(batch).source, LaunchSource::kSingle);
  Environment::Map spawning = batch;
  spawning["NPROC_PER_NODE"] = "4";
  EXPECT_EQ(resolve(spawning).source, LaunchSource::kSpawn);
}

TEST(ResolveLaunch, NprocPerNodeWithOneSlurmTaskANodeTakesTheNodesFromSlurm) {
  const LaunchEnvironment launch = resolve({{"SLURM_PROCID", "1"},
                                            {"SLURM_NTASKS", "2"},
                                            {"SLURM_STEP_ID", "0"},
                                            {"SLURM_NODEID", "1"},
                                            {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                                            {"SLURM_STEP_NODELIST", "n[1,5]"},
                                            {"SLURM_JOB_ID", "7"},
                                            {"NPROC_PER_NODE", "4"}});
  EXPECT_EQ(launch.source, LaunchSource::kSpawn);
  EXPECT_EQ(launch.world_size, 8);
  EXPECT_EQ(launch.rank, 4);
  EXPECT_EQ(launch.master_addr, "n1");
  EXPECT_EQ(launch.master_port, 20007);
}

TEST(ResolveLaunch, NprocPerNodeIsIgnoredWhereALauncherStartedSeveralRanks) {
  Environment::Map variables = slurm_step();
  variables["NPROC_PER_NODE"] = "4";
  EXPECT_EQ(resolve(variables).source, LaunchSource::kSlurm);
}

TEST(ResolveLaunch, OpenMpi) {
  const Environment::Map variables = {{"OMPI_COMM_WORLD_RANK", "6"},
                                      {"OMPI_COMM_WORLD_SIZE", "8"},
                                      {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                      {"MASTER_ADDR", "gpu01"}};
  const LaunchEnvironment launch = resolve(variables);
  EXPECT_EQ(launch.source, LaunchSource::kOpenMpi);
  EXPECT_EQ(launch.rank, 6);
  EXPECT_EQ(launch.local_rank, 2);
  EXPECT_EQ(launch.node_rank, 1);
  EXPECT_EQ(launch.master_port, 29500);
  Environment::Map lost = variables;
  lost.erase("MASTER_ADDR");
  expect_config_error(lost, "MASTER_ADDR is not set, but the 8 ranks are on several nodes (4 on this one)");
  lost["OMPI_COMM_WORLD_LOCAL_SIZE"] = "8";
  EXPECT_EQ(resolve(lost).master_addr, "127.0.0.1");
}

TEST(ResolveLaunch, Pmi) {
  const LaunchEnvironment launch =
      resolve({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  EXPECT_EQ(launch.source, LaunchSource::kPmi);
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.world_size, 2);
}

TEST(ResolveLaunch, HydraInsideASlurmJobUsesPmi) {
  const LaunchEnvironment launch = resolve({{"SLURM_PROCID", "0"},
                                            {"SLURM_NTASKS", "1"},
                                            {"SLURM_STEP_ID", "0"},
                                            {"PMI_RANK", "3"},
                                            {"PMI_SIZE", "4"}});
  EXPECT_EQ(launch.source, LaunchSource::kPmi);
  EXPECT_EQ(launch.rank, 3);
}

TEST(LaunchSourceName, NamesEverySource) {
  EXPECT_EQ(launch_source_name(LaunchSource::kSingle), "one process");
  EXPECT_EQ(launch_source_name(LaunchSource::kSpawn), "NPROC_PER_NODE");
  EXPECT_EQ(launch_source_name(LaunchSource::kTorchrun), "torchrun");
  EXPECT_EQ(launch_source_name(LaunchSource::kSlurm), "Slurm");
  EXPECT_EQ(launch_source_name(LaunchSource::kOpenMpi), "Open MPI");
  EXPECT_EQ(launch_source_name(LaunchSource::kPmi), "PMI");
}

}  // namespace
}  // namespace apus::comm
