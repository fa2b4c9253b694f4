#include "cli/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace apus::cli {
namespace {

// In a process of its own: the flags are the program's.
TEST(SignalsDeathTest, TheFirstOneIsNotedAndTheSecondOneKills) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto twice = [] {
    const SignalFlags& flags = watch_signals();
    if (flags.stop || flags.signal != 0) return;
    ::raise(SIGTERM);
    if (!flags.stop || flags.signal != SIGTERM) return;
    ::raise(SIGTERM);
  };
  EXPECT_EXIT(twice(), testing::KilledBySignal(SIGTERM), "");
}

TEST(SignalsDeathTest, AnotherSignalCountsAsTheSecond) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto both = [] {
    const SignalFlags& flags = watch_signals();
    ::raise(SIGINT);
    if (flags.signal != SIGINT) return;
    ::raise(SIGTERM);
  };
  EXPECT_EXIT(both(), testing::KilledBySignal(SIGTERM), "");
}

TEST(SignalsDeathTest, AClosedTerminalCountsUnlessItIsIgnored) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto closed = [](bool ignored) {
    ::signal(SIGHUP, ignored ? SIG_IGN : SIG_DFL);
    const SignalFlags& flags = watch_signals();
    ::raise(SIGHUP);
    ::_exit(flags.signal == SIGHUP ? 3 : 4);
  };
  EXPECT_EXIT(closed(false), testing::ExitedWithCode(3), "");
  EXPECT_EXIT(closed(true), testing::ExitedWithCode(4), "");
}

}  // namespace
}  // namespace apus::cli
