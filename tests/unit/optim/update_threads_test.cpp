#include "apus/optim/update_threads.h"

#include <atomic>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::optim {
namespace {

TEST(UpdateThreads, CallEachPieceOnceInEveryRun) {
  for (const int64_t count : {1, 2, 5}) {
    UpdateThreads threads(count);
    EXPECT_EQ(threads.count(), count);
    for (const int64_t pieces : {0, 1, 2, 7, 1000}) {
      std::vector<int> calls(static_cast<size_t>(pieces), 0);  // each piece writes its own
      threads.run(pieces, [&](int64_t piece) { ++calls[static_cast<size_t>(piece)]; });
      EXPECT_EQ(calls, std::vector<int>(static_cast<size_t>(pieces), 1)) << count;
    }
  }
}

TEST(UpdateThreads, WorkAtTheSameTime) {
  UpdateThreads threads(3);
  std::atomic<int> arrived{0};
  // Each piece waits for all three, which no fewer threads could pass.
  threads.run(3, [&](int64_t) {
    for (++arrived; arrived < 3;) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 3);
}

TEST(UpdateThreads, ManyShortRunsLoseNone) {
  UpdateThreads threads(4);
  std::atomic<int64_t> sum{0};
  for (int run = 0; run < 2000; ++run) threads.run(3, [&](int64_t piece) { sum += piece; });
  EXPECT_EQ(sum, 2000 * 3);
}

TEST(UpdateThreads, HandOnAPiecesExceptionAndGoOnAfterIt) {
  UpdateThreads threads(3);
  std::atomic<int> calls{0};
  const auto fails = [&](int64_t piece) {
    if (piece == 5) throw std::runtime_error("piece five");
    ++calls;
  };
  EXPECT_THROW(threads.run(100'000, fails), std::runtime_error);
  EXPECT_LT(calls, 99'999) << "later pieces are left out";
  calls = 0;
  threads.run(5, fails);
  EXPECT_EQ(calls, 5);
}

TEST(UpdateThreads, OneThreadIsTheCaller) {
  UpdateThreads threads(1);
  std::set<std::thread::id> ids;
  threads.run(10, [&](int64_t) { ids.insert(std::this_thread::get_id()); });
  EXPECT_EQ(ids, std::set{std::this_thread::get_id()});
}

TEST(UpdateThreads, RefuseToBeNone) {
  EXPECT_THROW(UpdateThreads(0), ConfigError);
}

}  // namespace
}  // namespace apus::optim
