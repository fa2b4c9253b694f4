#include "launch/rank_environment.h"

#include <gtest/gtest.h>

#include "apus/comm/launch_environment.h"
#include "apus/launch/cpu_share.h"

namespace apus::launch {
namespace {

TEST(RankEnvironment, IsWhatResolveLaunchReads) {
  const LaunchOptions options{.environment = Environment(Environment::Map{{"NPROC_PER_NODE", "2"}}),
                              .nproc_per_node = 2,
                              .nnodes = 3,
                              .node_rank = 1};
  const Environment environment =
      rank_environment(options, {.master_addr = "a", .master_port = 4000, .attempt = 2}, 1);
  const comm::LaunchEnvironment launch = comm::resolve_launch(environment);
  EXPECT_EQ(launch.source, comm::LaunchSource::kTorchrun);
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.world_size, 6);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.local_world_size, 2);
  EXPECT_EQ(launch.node_rank, 1);
  EXPECT_EQ(launch.master_addr, "a");
  EXPECT_EQ(launch.master_port, 4000);
  EXPECT_EQ(launch.restart_count, 2);
  EXPECT_FALSE(launch.use_agent_store);
  EXPECT_FALSE(environment.has("NPROC_PER_NODE"));
}

TEST(RankEnvironment, TheLaunchersStoreIsSaid) {
  const Environment environment =
      rank_environment({}, {.master_addr = "a", .master_port = 1, .launcher_serves = true}, 0);
  EXPECT_TRUE(comm::resolve_launch(environment).use_agent_store);
}

TEST(CpuShare, EveryRankHasAtLeastOneThread) {
  EXPECT_EQ(threads_per_rank(16, 4), 4);
  EXPECT_EQ(threads_per_rank(2, 4), 1);
  EXPECT_EQ(threads_per_rank(7, 2), 3);
  EXPECT_GE(usable_cpus(), 1);
}

}  // namespace
}  // namespace apus::launch
