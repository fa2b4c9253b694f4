#include "launch/child_group.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace apus::launch {
namespace {

ChildCommand shell(const std::string& script) {
  return {.program = "/bin/sh",
          .arguments = {"-c", script},
          .environment = Environment(Environment::Map{{"PATH", "/usr/bin:/bin"}})};
}

class ChildGroupTest : public testing::Test {
 protected:
  SystemClock clock_;
  CaptureLogger log_;
  ChildGroup group_{4, clock_, log_};
};

TEST_F(ChildGroupTest, AllEndsAreTold) {
  group_.start(shell("exit 0"));
  group_.start(shell("sleep 0.1"));
  const std::vector<RankExit> exits = group_.watch({});
  ASSERT_EQ(exits.size(), 2u);
  EXPECT_EQ(exits[0].rank, 4);
  EXPECT_EQ(exits[1].rank, 5);
  EXPECT_FALSE(exits[1].exit.failed());
  EXPECT_FALSE(exits[1].was_stopped);
}

TEST_F(ChildGroupTest, TheFailedOneComesFirstAndOthersWereStopped) {
  group_.start(shell("sleep 60"));
  group_.start(shell("exit 5"));
  const std::vector<RankExit> exits = group_.watch({});
  ASSERT_EQ(exits.size(), 2u);
  EXPECT_EQ(exits[0].rank, 5);
  EXPECT_EQ(exits[0].exit.code, 5);
  EXPECT_FALSE(exits[0].was_stopped);
  EXPECT_EQ(exits[1].exit.signal, SIGTERM);
  EXPECT_TRUE(exits[1].was_stopped);
}

TEST_F(ChildGroupTest, AHostsSignalIsPassedOnOnceEvenIfItCameBefore) {
  const std::atomic<int> signal = SIGINT;
  group_.start(shell("trap 'exit 130' INT; while true; do sleep 0.02; done"));
  const std::vector<RankExit> exits = group_.watch({.signal = &signal});
  ASSERT_EQ(exits.size(), 1u);
  EXPECT_TRUE(exits[0].exit.shell_code() == 130) << exits[0].exit.shell_code();
  EXPECT_EQ(log_.count("Passing SIGINT on"), 1);
}

}  // namespace
}  // namespace apus::launch
