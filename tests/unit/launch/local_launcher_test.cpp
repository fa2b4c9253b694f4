#include "apus/launch/local_launcher.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/comm/store.h"
#include "apus/launch/cpu_share.h"
#include "tests/support/scratch_folder.h"

namespace apus::launch {
namespace {

/// Ranks that run a line of shell.
class LocalLauncherTest : public testing::Test {
 protected:
  LaunchOptions shell(const std::string& script, int ranks) const {
    Environment environment(Environment::Map{{"OUT", folder_.path().string()}, {"PATH", "/usr/bin:/bin"}});
    return {.program = "/bin/sh",
            .arguments = {"-c", script},
            .environment = environment,
            .nproc_per_node = ranks,
            .grace = std::chrono::milliseconds(300)};
  }

  LaunchResult run(LaunchOptions options) { return LocalLauncher(std::move(options), clock_, log_).run(); }

  std::string refusal(LaunchOptions options) {
    try {
      LocalLauncher launcher(std::move(options), clock_, log_);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  ScratchFolder folder_;
  SystemClock clock_;
  std::shared_ptr<CaptureLogger> log_ = std::make_shared<CaptureLogger>();
};

TEST_F(LocalLauncherTest, EveryRankGetsItsPlace) {
  LaunchOptions options = shell(
      "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $NODE_RANK $MASTER_ADDR "
      "$TORCHELASTIC_RESTART_COUNT $OMP_NUM_THREADS ${NPROC_PER_NODE:-unset} > $OUT/$RANK; "
      "test $MASTER_PORT -gt 0 && test -d $APUS_ERROR_DIR",
      3);
  options.environment.set("NPROC_PER_NODE", "3");
  options.environment.set("OMP_NUM_THREADS", "5");
  const LaunchResult result = run(options);
  EXPECT_EQ(result.exit_code, 0) << result.first_cause;
  EXPECT_EQ(result.attempts, 1);
  EXPECT_EQ(read_file(folder_ / "0"), "0 0 3 3 0 0 127.0.0.1 0 5 unset\n");
  EXPECT_EQ(read_file(folder_ / "2"), "2 2 3 3 0 0 127.0.0.1 0 5 unset\n");
  EXPECT_EQ(log_->count("OMP_NUM_THREADS"), 0);
}

TEST_F(LocalLauncherTest, ThreadsAreSharedAndSaidOnce) {
  const LaunchResult result = run(shell("test $OMP_NUM_THREADS -ge 1", 2));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(log_->count("OMP_NUM_THREADS="), 1);
}

TEST_F(LocalLauncherTest, MoreRanksThanCpusAreAWarning) {
  const int cpus = usable_cpus();
  EXPECT_EQ(run(shell("true", cpus)).exit_code, 0);
  EXPECT_FALSE(log_->contains("CPUs: where they train"));
  EXPECT_EQ(run(shell("true", cpus + 1)).exit_code, 0);
  EXPECT_TRUE(
      log_->contains(detail::concat(cpus + 1, " ranks share ", cpus, " CPUs: where they train on the CPU")));
}

TEST_F(LocalLauncherTest, OneFailingRankStopsAllWithinSeconds) {
  const auto start = std::chrono::steady_clock::now();
  const LaunchResult result = run(shell("test $RANK = 1 && exit 3; sleep 60", 3));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.first_cause, "rank 1 ended with exit code 3");
}

TEST_F(LocalLauncherTest, ARankThatIgnoresSigtermIsKilled) {
  const LaunchResult result = run(
      shell("test $RANK = 1 && { sleep 0.2; exit 3; }; trap '' TERM; while true; do sleep 0.05; done", 2));
  EXPECT_EQ(result.first_cause, "rank 1 ended with exit code 3");
  EXPECT_EQ(log_->count("Killing the ranks that still run 0.3 s"), 1);
}

TEST_F(LocalLauncherTest, ASigkilledRankIsNamed) {
  const LaunchResult result = run(shell("test $RANK = 2 && kill -9 $$; sleep 60", 3));
  EXPECT_EQ(result.exit_code, 137);
  EXPECT_EQ(result.first_cause.find("rank 2 was killed by signal 9 (SIGKILL)"), 0u) << result.first_cause;
}

TEST_F(LocalLauncherTest, TheErrorThatARankLeftIsTheCause) {
  const LaunchResult result =
      run(shell("if test $RANK = 1; then sleep 0.1; echo "
                "'{\"rank\":1,\"time_ns\":9,\"kind\":\"own\",\"message\":\"no disk\"}' "
                "> $APUS_ERROR_DIR/rank-1.json; exit 4; fi; "
                "echo '{\"rank\":0,\"time_ns\":5,\"kind\":\"consequence\",\"message\":\"peer gone\"}' "
                "> $APUS_ERROR_DIR/rank-0.json; trap '' TERM; sleep 0.3; exit 1",
                2));
  EXPECT_EQ(result.first_cause, "rank 1: no disk");
  EXPECT_EQ(result.exit_code, 4);
}

TEST_F(LocalLauncherTest, RestartsUntilItGoesWell) {
  LaunchOptions options =
      shell("echo $TORCHELASTIC_RESTART_COUNT >> $OUT/$RANK; test $TORCHELASTIC_RESTART_COUNT = 2", 2);
  options.max_restarts = 3;
  const LaunchResult result = run(options);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.attempts, 3);
  EXPECT_EQ(log_->count("starting all ranks again"), 2);
}

TEST_F(LocalLauncherTest, GivesUpAfterTheLastRestart) {
  LaunchOptions options = shell("exit 6", 1);
  options.max_restarts = 1;
  const LaunchResult result = run(options);
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_EQ(result.attempts, 2);
}

TEST_F(LocalLauncherTest, AConfigurationErrorIsNotTriedAgain) {
  LaunchOptions options = shell(
      "echo '{\"rank\":0,\"time_ns\":1,\"kind\":\"configuration\",\"message\":\"bad flag\"}' > "
      "$APUS_ERROR_DIR/rank-0.json; exit 2",
      1);
  options.max_restarts = 5;
  const LaunchResult result = run(options);
  EXPECT_EQ(result.attempts, 1);
  EXPECT_EQ(result.first_cause, "rank 0: bad flag");
}

TEST_F(LocalLauncherTest, ASignalIsPassedOnAndRanksMayEndWell) {
  std::atomic<int> signal = 0;
  LaunchOptions options = shell(
      "trap 'touch $OUT/saved-$RANK; exit 143' TERM; touch $OUT/up-$RANK; "
      "while true; do sleep 0.02; done",
      2);
  options.signal = &signal;
  std::thread host([&] {
    while (!std::filesystem::exists(folder_ / "up-0") || !std::filesystem::exists(folder_ / "up-1")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    signal = SIGTERM;
  });
  const LaunchResult result = run(options);
  host.join();
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_EQ(result.first_cause, "");
  EXPECT_TRUE(std::filesystem::exists(folder_ / "saved-0"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "saved-1"));
  EXPECT_FALSE(result.ended_unheard);
}

TEST_F(LocalLauncherTest, RanksThatDidNotListenYetWereStoppedBeforeTheirFirstStep) {
  std::atomic<int> signal = SIGINT;
  LaunchOptions options = shell("exec sleep 60", 2);
  options.signal = &signal;
  const LaunchResult result = run(options);
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_EQ(result.first_cause, "");
  EXPECT_TRUE(result.ended_unheard);
}

TEST_F(LocalLauncherTest, APortInUseIsRefusedWithTheRemedy) {
  const auto taken = comm::make_tcp_store({.port = 0, .is_server = true});
  LaunchOptions options = shell("exit 0", 2);
  options.master_port = taken->port();
  const std::string message = refusal(options);
  EXPECT_EQ(
      message.find("--master_port " + std::to_string(taken->port()) + " (or MASTER_PORT) cannot be used"), 0u)
      << message;
  EXPECT_NE(message.find("give another one, or leave it out to take a free one"), message.npos) << message;
}

TEST_F(LocalLauncherTest, AFreePortThatIsGivenIsUsed) {
  const int port = comm::make_tcp_store({.port = 0, .is_server = true})->port();
  LaunchOptions options = shell("test $MASTER_PORT = " + std::to_string(port), 1);
  options.master_port = port;
  EXPECT_EQ(run(options).exit_code, 0);
}

TEST_F(LocalLauncherTest, CountsThatMakeNoSenseAreRefused) {
  LaunchOptions options = shell("exit 0", 0);
  EXPECT_EQ(refusal(options), "--nproc_per_node (or NPROC_PER_NODE) 0: expected 1 to 1024");
  options = shell("exit 0", 1);
  options.node_rank = 1;
  EXPECT_EQ(refusal(options), "--node_rank 1 does not lie in 0 to 0 (--nnodes 1)");
  options.node_rank = 0;
  options.nnodes = 2;
  EXPECT_NE(refusal(options).find("--nnodes 2 needs --master_addr"), std::string::npos);
  options.master_addr = "127.0.0.1";
  options.max_restarts = 1;
  EXPECT_NE(refusal(options).find("not supported yet"), std::string::npos);
  options.max_restarts = -1;
  EXPECT_EQ(refusal(options), "--max_restarts -1: expected 0 or more");
}

TEST_F(LocalLauncherTest, RanksOfTheSecondNodeComeAfterTheFirst) {
  LaunchOptions options = shell(
      "echo $RANK $WORLD_SIZE $NODE_RANK $MASTER_ADDR:$MASTER_PORT "
      "$TORCHELASTIC_USE_AGENT_STORE > $OUT/$LOCAL_RANK",
      2);
  options.nnodes = 2;
  options.node_rank = 1;
  options.master_addr = "node-a";
  EXPECT_EQ(run(options).exit_code, 0);
  EXPECT_EQ(read_file(folder_ / "1"), "3 4 1 node-a:29500 False\n");
}

}  // namespace
}  // namespace apus::launch
