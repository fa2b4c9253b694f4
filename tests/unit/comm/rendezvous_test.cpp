#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/comm/launch_environment.h"
#include "tests/support/rank_threads.h"

namespace apus::comm {
namespace {

using std::chrono::milliseconds;

int free_port() {
  return make_tcp_store({.port = 0, .is_server = true})->port();
}

LaunchEnvironment two_ranks(int rank, int port) {
  LaunchEnvironment launch;
  launch.rank = rank;
  launch.world_size = 2;
  launch.master_port = port;
  launch.source = LaunchSource::kTorchrun;
  return launch;
}

TEST(Rendezvous, OneProcessNeedsNoPort) {
  const auto store = rendezvous({});
  store->set("k", "1");
  EXPECT_EQ(store->try_get("k"), "1");
}

TEST(Rendezvous, RankZeroServesAndTheOthersConnect) {
  const int port = free_port();
  testing::run_threads(2, [&](int rank) {
    const auto store = rendezvous(two_ranks(rank, port), {.timeout = milliseconds(5000)});
    store->set("from/" + std::to_string(rank), "here");
    store->wait({"from/0", "from/1"}, milliseconds(5000));
  });
}

TEST(Rendezvous, RankZeroLingersUntilTheOthersHaveLeftButNotForEver) {
  const int port = free_port();
  testing::run_threads(2, [&](int rank) {
    auto store =
        rendezvous(two_ranks(rank, port), {.timeout = milliseconds(5000), .linger = milliseconds(3000)});
    if (rank == 1) {
      std::this_thread::sleep_for(milliseconds(150));
      EXPECT_EQ(store->get("cause", milliseconds(1000)), "out of disk");
      return;
    }
    store->set("cause", "out of disk");
    const auto start = std::chrono::steady_clock::now();
    store.reset();
    const auto waited = std::chrono::steady_clock::now() - start;
    EXPECT_GE(waited, milliseconds(50));
    EXPECT_LT(waited, milliseconds(2500));
  });
  const auto start = std::chrono::steady_clock::now();
  rendezvous(two_ranks(0, free_port()), {.linger = milliseconds(60)});
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(60));
}

TEST(Rendezvous, WithTheAgentsStoreRankZeroIsAClientToo) {
  const auto agent = make_tcp_store({.port = 0, .is_server = true});
  testing::run_threads(2, [&](int rank) {
    LaunchEnvironment launch = two_ranks(rank, agent->port());
    launch.use_agent_store = true;
    launch.restart_count = 3;
    rendezvous(launch, {.timeout = milliseconds(5000)})->set("from/" + std::to_string(rank), "here");
  });
  EXPECT_TRUE(agent->check({"/worker/attempt_3/from/0", "/worker/attempt_3/from/1"}));
}

TEST(Rendezvous, AttemptsDoNotReadEachOthersKeys) {
  const auto agent = make_tcp_store({.port = 0, .is_server = true});
  LaunchEnvironment launch = two_ranks(0, agent->port());
  launch.use_agent_store = true;
  rendezvous(launch)->set("k", "old");
  launch.restart_count = 1;
  EXPECT_EQ(rendezvous(launch)->try_get("k"), std::nullopt);
}

TEST(Rendezvous, PortInUseAndNobodyThereAreSaid) {
  const auto other = make_tcp_store({.port = 0, .is_server = true});
  EXPECT_THROW(rendezvous(two_ranks(0, other->port())), ConfigError);
  EXPECT_THROW(rendezvous(two_ranks(1, free_port()), {.timeout = milliseconds(50)}), CommError);
  EXPECT_THROW(rendezvous(two_ranks(1, 0)), ConfigError);
  LaunchEnvironment spawner;
  spawner.source = LaunchSource::kSpawn;
  spawner.spawn = 4;
  try {
    rendezvous(spawner);
    FAIL() << "met as a rank";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("torchrun --no-python --nproc_per_node=4"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace apus::comm
