#include "apus/comm/fake_communicator.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/comm/status_exchange.h"

namespace apus::comm {
namespace {

TEST(FakeCommunicator, PeersContributeZerosToReductionsAndExchanges) {
  const auto group = make_fake_communicator({.rank = 1, .size = 3});
  const at::Tensor tensor = at::full({2}, 4.0F);
  group->all_reduce(tensor, {.scale = 0.5})->wait();
  EXPECT_TRUE(at::equal(tensor, at::full({2}, 2.0F)));
  const at::Tensor out = at::full({2}, -1.0F);
  group->reduce_scatter(out, at::arange(6, at::kFloat), {.scale = 2.0})->wait();
  EXPECT_TRUE(at::equal(out, at::tensor({4.0F, 6.0F})));
  const at::Tensor exchanged = at::full({3}, -1.0F);
  group->all_to_all(exchanged, at::arange(3, at::kFloat))->wait();
  EXPECT_TRUE(at::equal(exchanged, at::tensor({0.0F, 1.0F, 0.0F}))) << "parts of a sum";
}

TEST(FakeCommunicator, GathersAndReceivesLeaveThePeersPartsAsTheyWere) {
  const auto group = make_fake_communicator({.rank = 1, .size = 3});
  const at::Tensor gathered = at::full({3}, -1.0F);
  group->all_gather(gathered, at::full({1}, 7.0F))->wait();
  EXPECT_TRUE(at::equal(gathered, at::tensor({-1.0F, 7.0F, -1.0F})));
  const at::Tensor received = at::full({1}, -1.0F);
  group->send_recv({{.kind = P2pKind::kRecv, .peer = 0, .tensor = received}})->wait();
  group->broadcast(received, 2)->wait();
  EXPECT_EQ(received.item<float>(), -1.0F);
  group->barrier();
}

TEST(FakeCommunicator, OneOfOneIsExact) {
  const auto group = make_fake_communicator({});
  const at::Tensor out = at::full({2}, 0.0F);
  group->all_gather(out, at::full({2}, 3.0F))->wait();
  EXPECT_TRUE(at::equal(out, at::full({2}, 3.0F)));
  EXPECT_EQ(group->split(0, 0, "own")->size(), 1);
}

TEST(FakeCommunicator, SubgroupsKnowTheirPlaceAndSplitIsRefused) {
  const auto group = make_fake_communicator({.rank = 2, .size = 4});
  const auto pair = group->subgroup({3, 2}, "pair");
  EXPECT_EQ(pair->rank(), 1);
  EXPECT_EQ(pair->size(), 2);
  EXPECT_EQ(pair->name(), "pair");
  EXPECT_THROW(group->split(0, 0, "x"), NotSupported);
}

TEST(FakeCommunicator, AbortReachesRelativesWithReasonAndNote) {
  const auto group = make_fake_communicator({.rank = 0, .size = 2});
  const auto child = group->subgroup({0, 1}, "child");
  child->set_note("step 12");
  child->abort("enough");
  try {
    group->barrier();
    FAIL() << "expected CommError";
  } catch (const CommError& error) {
    EXPECT_NE(std::string(error.what()).find("enough (step 12)"), std::string::npos) << error.what();
    EXPECT_EQ(error.place().operation, "barrier");
  }
  EXPECT_THROW(group->check_running(), CommError);
}

TEST(FakeCommunicator, StatusExchangesSucceedUnlessThisRankFails) {
  const auto group = make_fake_communicator({.rank = 0, .size = 8});
  EXPECT_NO_THROW(agree(*group, std::nullopt));
  EXPECT_THROW(agree(*group, "no data"), CommError);
}

TEST(FakeCommunicator, RefusesARankOutsideTheGroup) {
  EXPECT_THROW(make_fake_communicator({.rank = 2, .size = 2}), ConfigError);
  EXPECT_THROW(make_fake_communicator({.rank = 0, .size = 0}), ConfigError);
}

}  // namespace
}  // namespace apus::comm
