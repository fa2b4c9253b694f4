#include "comm/backoff.h"

#include <gtest/gtest.h>

namespace apus::comm {
namespace {

using std::chrono::milliseconds;

TEST(Backoff, PausesUntilTheDeadline) {
  const auto start = Backoff::Clock::now();
  const Backoff backoff(milliseconds(30));
  int pauses = 0;
  while (backoff.pause()) ++pauses;
  EXPECT_GE(Backoff::Clock::now() - start, milliseconds(30));
  EXPECT_GE(pauses, 5);  // short at first
}

TEST(Backoff, ADeadlineThatHasPassedDoesNotSleep) {
  const Backoff backoff(milliseconds(0));
  EXPECT_FALSE(backoff.pause());
}

}  // namespace
}  // namespace apus::comm
