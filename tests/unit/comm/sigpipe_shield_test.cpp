#include "comm/sigpipe_shield.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

namespace apus::comm {
namespace {

/// Writes into a pipe that nobody reads: SIGPIPE, which by default ends the process; errno of the write.
int write_to_nobody() {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  ::close(ends[0]);
  const ssize_t written = ::write(ends[1], "x", 1);
  const int code = written < 0 ? errno : 0;
  ::close(ends[1]);
  return code;
}

bool is_blocked() {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return sigismember(&mask, SIGPIPE) == 1;
}

TEST(SigpipeShield, AWriteToADeadPeerIsAnErrorAndNotTheEnd) {
  const bool before = is_blocked();
  {
    const SigpipeShield shield;
    EXPECT_EQ(write_to_nobody(), EPIPE);
  }
  EXPECT_EQ(is_blocked(), before) << "and the signal that came is not delivered afterwards";
}

TEST(SigpipeShield, ThreadsStartedUnderItKeepItsMask) {
  std::thread thread;
  int code = 0;
  {
    const SigpipeShield shield;
    thread = std::thread([&code] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      code = write_to_nobody();
    });
  }
  thread.join();
  EXPECT_EQ(code, EPIPE);
}

}  // namespace
}  // namespace apus::comm
