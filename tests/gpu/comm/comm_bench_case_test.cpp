#include "tests/bench/comm_bench_case.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "apus/comm/nccl_communicator.h"
#include "tests/support/rank_threads.h"

namespace apus::bench {
namespace {

TEST(CommBenchCase, EveryOperationIsRightInAWorldOfOneOverNccl) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  at::globalContext().lazyInitDevice(at::kCUDA);
  testing::run_ranks(1, [](std::shared_ptr<comm::Communicator> host) {
    const auto group =
        comm::NcclCommunicator::create(std::move(host), {.group_of_one = comm::GroupOfOne::kNccl});
    for (const std::string_view op : kCommOps) {
      if (op == "send_recv") continue;
      CommCase one(std::string(op), 1 << 20, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16), *group);
      one.refresh();
      one.run();
      EXPECT_TRUE(one.is_right()) << op;
    }
  });
}

}  // namespace
}  // namespace apus::bench
