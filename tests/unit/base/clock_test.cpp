#include "apus/base/clock.h"

#include <gtest/gtest.h>

namespace apus {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Clock, SystemClockSleepsAtLeastAsLongAsAsked) {
  SystemClock clock;
  const auto before = clock.steady_now();
  clock.sleep_for(milliseconds(5));
  EXPECT_GE(clock.steady_now() - before, milliseconds(5));
  EXPECT_GT(clock.wall_now().time_since_epoch(), std::chrono::hours(24 * 365 * 50));
}

TEST(Clock, ManualClockMovesOnlyWhenTold) {
  ManualClock clock(Clock::WallTime(seconds(1000)));
  EXPECT_EQ(clock.steady_now(), seconds(0));
  clock.advance(seconds(2));
  clock.sleep_for(milliseconds(500));
  EXPECT_EQ(clock.steady_now(), milliseconds(2500));
  EXPECT_EQ(clock.wall_now(), Clock::WallTime(milliseconds(1002500)));
}

TEST(Clock, SecondsBetweenKeepsFractions) {
  EXPECT_DOUBLE_EQ(seconds_between(seconds(1), milliseconds(2250)), 1.25);
}

TEST(Clock, CompactTimeIsUtcAndSortable) {
  EXPECT_EQ(compact_time(Clock::WallTime(seconds(0))), "19700101-000000");
  EXPECT_EQ(compact_time(Clock::WallTime(seconds(1709251199))), "20240229-235959");
}

}  // namespace
}  // namespace apus
