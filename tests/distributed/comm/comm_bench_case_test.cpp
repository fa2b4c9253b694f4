#include "tests/bench/comm_bench_case.h"

#include <gtest/gtest.h>

#include "tests/support/rank_threads.h"

namespace apus::bench {
namespace {

TEST(CommBenchCase, EveryOperationIsRightOnceItHasRunOverGloo) {
  for (const int ranks : {2, 3}) {
    testing::run_ranks(ranks, [](std::shared_ptr<comm::Communicator> world) {
      for (const std::string_view op : kCommOps) {
        for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
          CommCase one(std::string(op), 20'000, dtype, *world);
          for (int sample = 0; sample < 2; ++sample) {
            one.refresh();
            EXPECT_EQ(one.is_right(), op == "broadcast" && world->rank() + 1 == world->size()) << op;
            one.run();
            EXPECT_TRUE(one.is_right()) << op << " over " << world->size();
          }
        }
      }
    });
  }
}

}  // namespace
}  // namespace apus::bench
