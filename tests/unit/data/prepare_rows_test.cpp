#include "data/prepare_rows.h"

#include <atomic>
#include <numeric>

#include <gtest/gtest.h>

namespace apus::data {
namespace {

TEST(RunInParallel, CallsEveryIndexOnce) {
  for (const int64_t workers : {1, 2, 9}) {
    std::vector<std::atomic<int>> calls(100);
    run_in_parallel(100, workers, [&](int64_t i) { ++calls[static_cast<size_t>(i)]; });
    for (const auto& count : calls) EXPECT_EQ(count, 1);
  }
  run_in_parallel(0, 4, [](int64_t) { FAIL() << "there is no index"; });
}

TEST(RunInParallel, ThrowsTheExceptionOfTheSmallestIndex) {
  for (int round = 0; round < 50; ++round) {
    try {
      run_in_parallel(64, 4, [](int64_t i) {
        if (i % 10 == 7) throw std::runtime_error(std::to_string(i));
      });
      FAIL() << "threw nothing";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "7");
    }
  }
}

TEST(RunInParallel, StopsSoonAfterAnException) {
  std::atomic<int64_t> calls = 0;
  EXPECT_THROW(run_in_parallel(1'000'000, 1,
                               [&](int64_t i) {
                                 ++calls;
                                 if (i == 5) throw std::runtime_error("five");
                               }),
               std::runtime_error);
  EXPECT_EQ(calls, 6);
}

TEST(Fingerprint, TextsOneAfterAnotherAreNotMixedUp) {
  Hash64 first, second;
  add_text(first, "ab");
  add_text(first, "c");
  add_text(second, "a");
  add_text(second, "bc");
  EXPECT_NE(first.digest(), second.digest());
}

}  // namespace
}  // namespace apus::data
