#include "launch/child_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "tests/support/scratch_folder.h"

namespace apus::launch {
namespace {

ChildCommand shell(const std::string& script, Environment environment = {}) {
  return {.program = "/bin/sh", .arguments = {"-c", script}, .environment = std::move(environment)};
}

ChildExit wait_for(ChildProcess& child) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!child.poll()) {
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("the child does not end");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return *child.poll();
}

void wait_for_file(const std::filesystem::path& path) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!std::filesystem::exists(path)) {
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("no " + path.string());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST(ChildProcess, TellsExitCodesAndSignals) {
  ChildProcess well(shell("exit 0"));
  ChildProcess badly(shell("exit 7"));
  ChildProcess killed(shell("kill -9 $$"));
  EXPECT_FALSE(wait_for(well).failed());
  EXPECT_EQ(wait_for(badly).code, 7);
  EXPECT_EQ(wait_for(killed).signal, SIGKILL);
  EXPECT_EQ(wait_for(killed).shell_code(), 137);
  EXPECT_FALSE(killed.running());
}

TEST(ChildProcess, GetsItsEnvironmentAndArgumentsAndNothingElse) {
  const ScratchFolder folder;
  const std::string script =
      "printf '%s|%s|%s' \"$A\" \"${HOME:-none}\" \"$1\" > " + (folder / "out").string();
  ChildCommand command = shell(script, Environment(Environment::Map{{"A", "x y"}}));
  command.arguments.insert(command.arguments.end(), {"name", "first one"});
  ChildProcess child(command);
  EXPECT_FALSE(wait_for(child).failed());
  EXPECT_EQ(read_file(folder / "out"), "x y|none|first one");
}

TEST(ChildProcess, AProgramThatCannotRunIsAnErrorWithTheReason) {
  try {
    ChildProcess child({.program = "/nowhere/apus", .arguments = {}, .environment = {}});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "cannot run /nowhere/apus: No such file or directory");
  }
}

TEST(ChildProcess, SignalsReachItsOwnChildrenToo) {
  const ScratchFolder folder;
  const std::string place = folder.path().string();
  ChildProcess child(shell("(trap 'touch " + place + "/told; exit 0' TERM; touch " + place +
                               "/up; while true; do sleep 0.01; done) & wait",
                           Environment(Environment::Map{{"PATH", "/usr/bin:/bin"}})));
  wait_for_file(folder / "up");
  child.send(SIGTERM);
  EXPECT_EQ(wait_for(child).signal, SIGTERM);
  wait_for_file(folder / "told");
}

TEST(ChildProcess, ItsEndIsKilledWithItsHandle) {
  pid_t pid = 0;
  {
    ChildProcess child(shell("sleep 60"));
    pid = child.pid();
  }
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST(ChildProcess, BlockedSignalsAreNotInherited) {
  sigset_t set, old;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &set, &old);
  ChildProcess child(shell("kill -TERM $$; sleep 60"));
  const ChildExit end = wait_for(child);
  ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
  EXPECT_EQ(end.signal, SIGTERM);
}

TEST(ChildProcess, SignalNames) {
  EXPECT_EQ(signal_name(SIGKILL), "SIGKILL");
  EXPECT_EQ(signal_name(SIGTERM), "SIGTERM");
  EXPECT_EQ(signal_name(1000), "signal 1000");
}

}  // namespace
}  // namespace apus::launch
