#include "apus/data/shuffle_buffer.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include <gtest/gtest.h>

namespace apus::data {
namespace {

std::vector<int> shuffled(int count, const ShuffleBufferOptions& options) {
  ShuffleBuffer<int> buffer(options);
  std::vector<int> out;
  for (int i = 0; i < count; ++i) {
    if (const auto item = buffer.push(i)) out.push_back(*item);
    EXPECT_LT(buffer.waiting(), options.capacity);
  }
  while (const auto item = buffer.drain()) out.push_back(*item);
  return out;
}

TEST(ShuffleBuffer, GivesEveryItemOnce) {
  for (const int64_t capacity : {1, 2, 10, 1000}) {
    std::vector<int> out = shuffled(300, {.capacity = capacity});
    std::ranges::sort(out);
    std::vector<int> expected(300);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(out, expected) << capacity;
  }
  EXPECT_TRUE(shuffled(0, {.capacity = 3}).empty());
}

TEST(ShuffleBuffer, TheOrderIsAFunctionOfSeedEpochAndCapacity) {
  const std::vector<int> first = shuffled(100, {.capacity = 16, .seed = 7, .epoch = 2});
  EXPECT_EQ(shuffled(100, {.capacity = 16, .seed = 7, .epoch = 2}), first);
  EXPECT_NE(shuffled(100, {.capacity = 16, .seed = 8, .epoch = 2}), first);
  EXPECT_NE(shuffled(100, {.capacity = 16, .seed = 7, .epoch = 3}), first);
  EXPECT_NE(shuffled(100, {.capacity = 17, .seed = 7, .epoch = 2}), first);
}

TEST(ShuffleBuffer, ACapacityOfOneLeavesTheOrder) {
  const std::vector<int> out = shuffled(50, {.capacity = 1});
  EXPECT_TRUE(std::ranges::is_sorted(out));
}

TEST(ShuffleBuffer, AnItemComesAtMostCapacityPlacesEarly) {
  const std::vector<int> out = shuffled(5000, {.capacity = 64});
  int64_t late = 0;
  for (size_t place = 0; place < out.size(); ++place) {
    EXPECT_GT(static_cast<int64_t>(place), out[place] - 64);
    late = std::max<int64_t>(late, static_cast<int64_t>(place) - out[place]);
  }
  EXPECT_GT(late, 64) << "some wait longer than the buffer is long";
}

TEST(ShuffleBuffer, EveryPlaceIsDrawnEquallyOften) {
  std::vector<int> first(8, 0);
  for (uint64_t seed = 0; seed < 4000; ++seed)
    ++first[static_cast<size_t>(shuffled(8, {.capacity = 8, .seed = seed})[0])];
  for (const int count : first) EXPECT_NEAR(count, 500, 120);  // 5.7 standard deviations
}

TEST(ShuffleBuffer, HoldsItemsThatOnlyMove) {
  ShuffleBuffer<std::unique_ptr<int>> buffer({.capacity = 2});
  EXPECT_FALSE(buffer.push(std::make_unique<int>(1)).has_value());
  EXPECT_TRUE(buffer.push(std::make_unique<int>(2)).has_value());
  EXPECT_NE(*buffer.drain(), nullptr);
  EXPECT_THROW(ShuffleBuffer<int>({.capacity = 0}), ConfigError);
}

}  // namespace
}  // namespace apus::data
