// Ranks as threads over many short-lived groups. libtorch keeps one map of all process groups of a process, which
// the first operation of a group writes without a lock: groups of different threads must not start at once.
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/rank_threads.h"

namespace apus::comm {
namespace {

TEST(RankThreads, ManyNewGroupsStartTheirFirstOperationsAtOnce) {
  for (int job = 0; job < 6; ++job) {
    apus::testing::run_ranks(8, [](std::shared_ptr<Communicator> world) {
      const int first = world->rank() / 2 * 2;
      const at::Tensor value = at::full({8}, 1.0);
      for (int group = 0; group < 40; ++group) {
        const auto pair = world->subgroup({first, first + 1}, "pair");
        pair->all_reduce(value)->wait();
      }
      EXPECT_EQ(value[0].item<double>(), std::pow(2.0, 40));
    });
  }
}

}  // namespace
}  // namespace apus::comm
