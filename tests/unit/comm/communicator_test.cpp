#include "apus/comm/communicator.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <functional>

#include "apus/base/error.h"
#include "apus/comm/fake_communicator.h"

namespace apus::comm {
namespace {

/// Expects a ShapeError whose message has every part, and that nothing was started.
void expect_refused(const std::function<void(Communicator&)>& call, const std::vector<std::string>& parts) {
  const auto group = make_fake_communicator({.rank = 1, .size = 4, .name = "dp"});
  try {
    call(*group);
    FAIL() << "expected ShapeError with: " << parts.front();
  } catch (const ShapeError& error) {
    const std::string text = error.what();
    for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
    EXPECT_NE(text.find("dp"), std::string::npos) << text;
  }
}

TEST(Communicator, ANonContiguousTensorIsRefusedAndNotReducedInACopy) {
  const at::Tensor square = at::arange(16, at::kFloat).view({4, 4});
  expect_refused([&](Communicator& g) { g.all_reduce(square.t()); },
                 {"all_reduce", "not contiguous", "tensor"});
  expect_refused(
      [&](Communicator& g) {
        g.all_gather(at::empty({4, 4, 4}), square.t());
      },
      {"in", "not contiguous"});
  expect_refused([&](Communicator& g) { g.reduce_scatter(at::empty({8}).slice(0, 0, 8, 2), square); },
                 {"out", "not contiguous"});
  expect_refused([&](Communicator& g) { g.broadcast(square.t(), 0); }, {"not contiguous"});
  expect_refused([&](Communicator& g) { g.all_to_all(at::empty({4, 4}).t(), square); }, {"not contiguous"});
  expect_refused(
      [&](Communicator& g) { g.send_recv({{.kind = P2pKind::kSend, .peer = 0, .tensor = square.t()}}); },
      {"sent tensor", "not contiguous"});
}

TEST(Communicator, CountsComeWithTheirArithmetic) {
  expect_refused([](Communicator& g) { g.all_gather(at::zeros({12}), at::zeros({4})); },
                 {"out has 12 elements, expected 4 ranks x 4 = 16"});
  expect_refused([](Communicator& g) { g.reduce_scatter(at::zeros({4}), at::zeros({12})); },
                 {"in has 12 elements, expected 4 ranks x 4 = 16"});
  expect_refused([](Communicator& g) { g.all_to_all(at::zeros({6}), at::zeros({6})); },
                 {"a multiple of 4 ranks"});
}

TEST(Communicator, DtypesMustAgreeAndBeReducible) {
  expect_refused([](Communicator& g) { g.all_gather(at::zeros({4}, at::kLong), at::zeros({1})); },
                 {"out is Long, in is Float"});
  expect_refused([](Communicator& g) { g.all_reduce(at::zeros({4}, at::kBool)); }, {"cannot reduce Bool"});
  expect_refused([](Communicator& g) { g.all_reduce(at::zeros({4}, at::kLong), {.scale = 0.5}); },
                 {"scale 0.5 on Long", "floating"});
}

TEST(Communicator, UndefinedTensorsAndForeignRanksAreRefused) {
  expect_refused([](Communicator& g) { g.all_reduce(at::Tensor()); }, {"undefined"});
  expect_refused([](Communicator& g) { g.broadcast(at::zeros({1}), 4); }, {"root 4 is not a rank", "0 to 3"});
  expect_refused(
      [](Communicator& g) { g.send_recv({{.kind = P2pKind::kRecv, .peer = 1, .tensor = at::zeros({1})}}); },
      {"peer 1 is this rank itself"});
  expect_refused([](Communicator& g) { g.send_recv({{.peer = 0, .tensor = at::zeros({1}), .tag = 5000}}); },
                 {"tag 5000"});
}

TEST(Communicator, OverlapIsRefusedButForTheOwnPart) {
  const at::Tensor whole = at::arange(8, at::kFloat);
  expect_refused([&](Communicator& g) { g.all_gather(whole, whole.narrow(0, 0, 2)); }, {"overlap"});
  expect_refused([&](Communicator& g) { g.reduce_scatter(whole.narrow(0, 0, 2), whole); }, {"overlap"});
  const auto group = make_fake_communicator({.rank = 1, .size = 4});
  EXPECT_NO_THROW(group->all_gather(whole, whole.narrow(0, 2, 2))->wait());
  EXPECT_NO_THROW(group->reduce_scatter(whole.narrow(0, 2, 2), whole)->wait());
}

TEST(Communicator, SplitsOfAllToAllVMustFit) {
  const at::Tensor in = at::zeros({6, 2});
  const auto call = [&](std::vector<int64_t> out_splits, std::vector<int64_t> in_splits) {
    return [&in, out_splits, in_splits](Communicator& g) {
      g.all_to_all_v(at::empty({6, 2}), in, out_splits, in_splits);
    };
  };
  expect_refused(call({1, 1, 2, 2}, {1, 1, 2}), {"in has 3 splits for 4 ranks"});
  expect_refused(call({1, 1, 2, 2}, {1, 1, 2, 3}), {"splits of in sum to 7", "6 rows"});
  expect_refused(call({1, 1, 2, 2}, {7, 1, -1, -1}), {"negative"});
  expect_refused(call({1, 1, 2, 2}, {1, 2, 1, 2}), {"sends itself 2 rows but expects 1"});
  expect_refused(
      [&](Communicator& g) {
        g.all_to_all_v(at::empty({6, 3}), in, {1, 1, 2, 2}, {1, 1, 2, 2});
      },
      {"differ behind dim 0"});
}

TEST(Communicator, SubgroupWantsKnownDistinctMembersWithThisRank) {
  expect_refused([](Communicator& g) { g.subgroup({0, 1, 4}, "tp"); }, {"tp", "member 4"});
  expect_refused([](Communicator& g) { g.subgroup({1, 1}, "tp"); }, {"named twice"});
  expect_refused([](Communicator& g) { g.subgroup({0, 2}, "tp"); }, {"pass an empty list"});
  const auto group = make_fake_communicator({.rank = 1, .size = 4});
  EXPECT_EQ(group->subgroup({}, "none"), nullptr);
}

}  // namespace
}  // namespace apus::comm
