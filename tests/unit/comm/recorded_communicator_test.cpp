#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/base/log.h"
#include "apus/comm/decorators.h"
#include "apus/comm/fake_communicator.h"

namespace apus::comm {
namespace {

std::unique_ptr<Communicator> recorded(std::shared_ptr<CommLog> log,
                                       std::shared_ptr<Logger> logger = nullptr) {
  return make_recorded_communicator(make_fake_communicator({.rank = 1, .size = 4, .name = "dp"}),
                                    std::move(log), std::move(logger));
}

TEST(RecordedCommunicator, CountsThePayloadThatARankHandsOver) {
  const auto log = CommLog::create();
  const auto group = recorded(log);
  group->all_reduce(at::zeros({10}))->wait();
  group->reduce_scatter(at::zeros({2}), at::zeros({8}))->wait();
  group->all_gather(at::zeros({8}, at::kBFloat16), at::zeros({2}, at::kBFloat16))->wait();
  group->broadcast(at::zeros({3}, at::kByte), 0)->wait();
  group->all_to_all(at::zeros({4}), at::zeros({4}))->wait();
  const at::Tensor row = at::zeros({5});
  group
      ->send_recv({{.kind = P2pKind::kSend, .peer = 0, .tensor = row},
                   {.kind = P2pKind::kRecv, .peer = 0, .tensor = at::zeros({7})}})
      ->wait();
  group->barrier();
  EXPECT_EQ(log->bytes(OpKind::kAllReduce), 40);      // its input
  EXPECT_EQ(log->bytes(OpKind::kReduceScatter), 32);  // its input
  EXPECT_EQ(log->bytes(OpKind::kAllGather), 16);      // its output
  EXPECT_EQ(log->bytes(OpKind::kBroadcast), 3);
  EXPECT_EQ(log->bytes(OpKind::kAllToAll), 16);
  EXPECT_EQ(log->bytes(OpKind::kSendRecv), 20);  // what is sent
  EXPECT_EQ(log->bytes(OpKind::kBarrier), 0);
  EXPECT_EQ(log->count(OpKind::kBarrier), 1);
  EXPECT_EQ(log->records().size(), 7U);
}

TEST(RecordedCommunicator, KeepsTheLastOperationsButTheTotalsOfAll) {
  const auto log = CommLog::create(2);
  const auto group = recorded(log);
  for (int i = 1; i <= 5; ++i) group->all_reduce(at::zeros({i}))->wait();
  ASSERT_EQ(log->records().size(), 2U);
  EXPECT_EQ(log->records()[0].info.sequence, 4);
  EXPECT_EQ(log->records()[1].rank, 1);
  EXPECT_EQ(log->count(OpKind::kAllReduce), 5);
  EXPECT_EQ(log->bytes(OpKind::kAllReduce), 4 * (1 + 2 + 3 + 4 + 5));
  log->clear();
  EXPECT_EQ(log->count(OpKind::kAllReduce), 0);
  EXPECT_TRUE(log->records().empty());
  EXPECT_THROW(CommLog::create(0), ConfigError);
}

TEST(RecordedCommunicator, GroupsShareTheLogUnderTheirNames) {
  const auto log = CommLog::create();
  const auto group = recorded(log);
  group->barrier();
  group->subgroup({0, 1}, "tp")->barrier();
  ASSERT_EQ(log->records().size(), 2U);
  EXPECT_EQ(log->records()[0].group, "dp");
  EXPECT_EQ(log->records()[1].group, "tp");
}

TEST(RecordedCommunicator, WritesTheLastOperationsWhenAborted) {
  const auto log = CommLog::create();
  const auto logger = std::make_shared<CaptureLogger>();
  const auto group = recorded(log, logger);
  group->all_reduce(at::zeros({3}))->wait();
  group->abort("out of luck");
  EXPECT_TRUE(logger->contains("out of luck"));
  EXPECT_TRUE(logger->contains("dp rank 1: all_reduce #1 Float[3] (sum), 12 bytes"));
  EXPECT_THROW(group->barrier(), CommError);
  EXPECT_THROW(make_recorded_communicator(make_fake_communicator({}), nullptr), ConfigError);
}

}  // namespace
}  // namespace apus::comm
