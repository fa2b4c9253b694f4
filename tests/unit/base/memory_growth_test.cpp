#include "tests/bench/memory_growth.h"

#include <gtest/gtest.h>

namespace apus::bench {
namespace {

std::vector<MemorySample> steps(int count, int64_t host_a_step) {
  std::vector<MemorySample> samples;
  for (int step = 0; step < count; ++step)
    samples.push_back({.step = step, .allocated = 100, .reserved = 200, .host = 1000 + host_a_step * step});
  return samples;
}

TEST(MemoryGrowth, IsNoneWhereMemoryStandsStill) {
  const MemorySample growth = growth_of(steps(20, 0));
  EXPECT_EQ(growth.step, 19);
  EXPECT_EQ(growth.allocated, 0);
  EXPECT_EQ(growth.reserved, 0);
  EXPECT_EQ(growth.host, 0);
}

TEST(MemoryGrowth, IsWhatALeakAddsFromTheSecondQuarterToTheLast) {
  EXPECT_EQ(growth_of(steps(20, 3)).host, 3 * (19 - 9));
  EXPECT_EQ(growth_of(steps(20, 3)).allocated, 0);
}

TEST(MemoryGrowth, WarmingUpIsNotCounted) {
  std::vector<MemorySample> samples = steps(16, 0);
  for (size_t i = 0; i < 4; ++i) samples[i].reserved = samples[i].host = 0;
  EXPECT_EQ(growth_of(samples).reserved, 0);
  EXPECT_EQ(growth_of(samples).host, 0);
}

TEST(MemoryGrowth, AShrinkIsNegativeAndFewSamplesSayNothing) {
  EXPECT_LT(growth_of(steps(8, -2)).host, 0);
  EXPECT_EQ(growth_of(steps(7, 5)).host, 0);
}

}  // namespace
}  // namespace apus::bench
