// Ranks as threads over many short-lived groups: libtorch's flight recorder keeps an unlocked map of groups, which
// concurrent first operations of new groups corrupted (a crash about every hundred jobs).
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "tests/support/rank_threads.h"

namespace apus::comm {
namespace {

TEST(RankThreads, ManyNewGroupsStartTheirFirstOperationsAtOnce) {
  for (int job = 0; job < 60; ++job) {
    apus::testing::run_ranks(4, [](std::shared_ptr<Communicator> world) {
      const at::Tensor value = at::full({8}, 1.0);
      for (int operation = 0; operation < 5; ++operation) world->all_reduce(value)->wait();
      EXPECT_EQ(value[0].item<double>(), 1024.0);
    });
  }
}

}  // namespace
}  // namespace apus::comm
