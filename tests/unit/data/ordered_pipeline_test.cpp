#include "data/ordered_pipeline.h"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace apus::data {
namespace {

using Pipeline = OrderedPipeline<int, std::string>;

/// Reads 0, 1, ... up to `count`, each standing for `bytes`.
std::function<std::optional<PipelineItem<int>>()> counter(int count, int64_t bytes, std::atomic<int>& read) {
  return [=, &read]() -> std::optional<PipelineItem<int>> {
    if (read == count) return std::nullopt;
    return PipelineItem<int>{read++, bytes};
  };
}

TEST(OrderedPipeline, DeliversInTheOrderOfReadingWhateverIsFast) {
  for (const int64_t workers : {1, 3, 8}) {
    std::atomic<int> read = 0;
    Pipeline pipeline({.workers = workers}, counter(200, 1, read), [](int i) {
      if (i % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
      return std::to_string(i);
    });
    for (int i = 0; i < 200; ++i) ASSERT_EQ(pipeline.next(), std::to_string(i));
    EXPECT_EQ(pipeline.next(), std::nullopt);
    EXPECT_EQ(pipeline.next(), std::nullopt);
  }
}

TEST(OrderedPipeline, ThrowsTheFirstExceptionInOrder) {
  for (int round = 0; round < 30; ++round) {
    std::atomic<int> read = 0;
    Pipeline pipeline({.workers = 4}, counter(40, 1, read), [](int i) -> std::string {
      if (i >= 5 && i % 5 == 0) throw std::runtime_error(std::to_string(i));
      return {};
    });
    for (int i = 0; i < 5; ++i) pipeline.next();
    try {
      pipeline.next();
      FAIL() << "threw nothing";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "5");
    }
  }
}

TEST(OrderedPipeline, AnErrorOfReadingComesAfterTheItemsBeforeIt) {
  int read = 0;
  Pipeline pipeline(
      {.workers = 2},
      [&]() -> std::optional<PipelineItem<int>> {
        if (read == 3) throw std::runtime_error("unreadable");
        return PipelineItem<int>{read++, 1};
      },
      [](int i) { return std::to_string(i); });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pipeline.next(), std::to_string(i));
  EXPECT_THROW(pipeline.next(), std::runtime_error);
  EXPECT_EQ(pipeline.next(), std::nullopt);
}

TEST(OrderedPipeline, ReadsNoFurtherAheadThanItsBounds) {
  std::atomic<int> read = 0;
  Pipeline by_count({.workers = 2}, counter(100, 1, read), [](int i) { return std::to_string(i); });
  by_count.next();
  EXPECT_EQ(read, 6);
  std::atomic<int> large = 0;
  Pipeline by_bytes({.workers = 2, .max_bytes_ahead = 10}, counter(100, 6, large),
                    [](int i) { return std::to_string(i); });
  by_bytes.next();
  EXPECT_EQ(large, 2);
}

TEST(OrderedPipeline, MayBeLeftEarly) {
  std::atomic<int> read = 0, worked = 0;
  {
    Pipeline pipeline({.workers = 2}, counter(1000, 1, read), [&](int i) {
      ++worked;
      return std::to_string(i);
    });
    pipeline.next();
  }
  EXPECT_LE(worked, 6);
}

}  // namespace
}  // namespace apus::data
