#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/comm/decorators.h"
#include "tests/support/rank_threads.h"

namespace apus::comm {
namespace {

using std::chrono::milliseconds;
using testing::run_ranks;

TEST(CheckedCommunicator, EqualCallsPassAndCompute) {
  run_ranks(3, [](std::shared_ptr<Communicator> world) {
    const auto group = make_checked_communicator(world);
    for (int i = 0; i < 5; ++i) {
      const at::Tensor tensor = at::full({2}, i);
      group->all_reduce(tensor)->wait();
      EXPECT_EQ(tensor[1].item<int64_t>(), 3 * i);
      group->all_gather(at::zeros({6}), at::zeros({2}))->wait();
    }
    group->subgroup({group->rank()}, "self")->barrier();
    const std::vector<int64_t> splits{1, 1, 1};
    group->all_to_all_v(at::zeros({3}), at::zeros({3}), splits, splits)->wait();
    if (group->rank() < 2) {  // only the two ends take part in a transfer
      const P2pKind kind = group->rank() == 0 ? P2pKind::kSend : P2pKind::kRecv;
      group->send_recv({{.kind = kind, .peer = 1 - group->rank(), .tensor = at::zeros({1})}})->wait();
    }
    group->barrier();
  });
}

/// What every rank of four gets when rank 3 makes another call.
void expect_mismatch(const std::function<void(Communicator&)>& usual,
                     const std::function<void(Communicator&)>& odd, const std::string& expected) {
  run_ranks(4, [&](std::shared_ptr<Communicator> world) {
    const auto group = make_checked_communicator(world->subgroup({0, 1, 2, 3}, "dp"));
    group->barrier();
    try {
      (group->rank() == 3 ? odd : usual)(*group);
      ADD_FAILURE() << "rank " << group->rank() << " passed";
    } catch (const CommError& error) {
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  });
}

TEST(CheckedCommunicator, AnotherOperationIsNamedOnAllRanks) {
  expect_mismatch([](Communicator& g) { g.all_gather(at::zeros({8}), at::zeros({2})); },
                  [](Communicator& g) { g.reduce_scatter(at::zeros({2}), at::zeros({8})); },
                  "rank 3 is in reduce_scatter Float x 8 (sum) #2 of dp, others in all_gather Float x 8 #2");
}

TEST(CheckedCommunicator, AnotherCountDtypeOrRootIsNamed) {
  expect_mismatch(
      [](Communicator& g) { g.all_reduce(at::zeros({8})); },
      [](Communicator& g) { g.all_reduce(at::zeros({9})); },
      "rank 3 is in all_reduce Float x 9 (sum) #2 of dp, others in all_reduce Float x 8 (sum) #2");
  expect_mismatch([](Communicator& g) { g.all_reduce(at::zeros({8})); },
                  [](Communicator& g) { g.all_reduce(at::zeros({8}, at::kDouble)); }, "Double x 8");
  expect_mismatch([](Communicator& g) { g.broadcast(at::zeros({8}), 0); },
                  [](Communicator& g) { g.broadcast(at::zeros({8}), 1); }, "(root 1)");
}

TEST(CheckedCommunicator, ARankThatDoesNotComeIsNamedAfterTheTimeout) {
  run_ranks(2, [](std::shared_ptr<Communicator> world) {
    const auto group = make_checked_communicator(world, {.timeout = milliseconds(100)});
    if (group->rank() == 1) return;
    try {
      group->barrier();
      ADD_FAILURE() << "passed alone";
    } catch (const CommError& error) {
      EXPECT_NE(std::string(error.what()).find("rank 1 has not come to barrier #1 of world"),
                std::string::npos)
          << error.what();
    }
  });
}

}  // namespace
}  // namespace apus::comm
