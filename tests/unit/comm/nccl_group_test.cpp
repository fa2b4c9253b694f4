#include "comm/nccl_group.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/comm/decorators.h"
#include "comm/nccl_linked.h"
#include "tests/support/nccl_ranks.h"

namespace apus::comm {
namespace {

using namespace apus::testing;
using Group = std::shared_ptr<Communicator>;

/// Of fp32 where nothing is said: at::full takes the dtype of its number.
at::Tensor full(at::IntArrayRef shape, double value, at::TensorOptions options = at::kFloat) {
  return at::full(shape, value, options);
}

at::Tensor range(int64_t begin, int64_t end, at::ScalarType dtype = at::kFloat) {
  return at::arange(begin, end, dtype);
}

TEST(NcclGroup, EveryReductionGivesWhatItsContractSays) {
  FakeNccl fake;
  run_nccl(3, fake, [](Group group, Group) {
    const int r = group->rank();
    for (const at::ScalarType dtype :
         {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong, at::kByte}) {
      const at::Tensor sum = full({4}, r + 1, dtype);
      group->all_reduce(sum)->wait();
      group->barrier();
      EXPECT_TRUE(sum.equal(full({4}, 6, dtype))) << at::toString(dtype);
      const at::Tensor largest = full({2}, r, dtype), least = full({2}, r + 1, dtype);
      group->all_reduce(largest, {.op = ReduceOp::kMax})->wait();
      group->all_reduce(least, {.op = ReduceOp::kMin})->wait();
      const at::Tensor part = at::empty({2}, dtype), whole = range(0, 6, dtype);
      group->reduce_scatter(part, whole)->wait();
      group->barrier();
      EXPECT_TRUE(largest.equal(full({2}, 2, dtype)));
      EXPECT_TRUE(least.equal(full({2}, 1, dtype)));
      EXPECT_TRUE(part.equal(range(2 * r, 2 * r + 2, dtype) * 3)) << part;
    }
  });
  EXPECT_EQ(fake.violations(), "");
}

TEST(NcclGroup, EveryMoveGivesWhatItsContractSays) {
  FakeNccl fake;
  run_nccl(3, fake, [](Group group, Group) {
    const int r = group->rank();
    const at::Tensor all = at::empty({6}, at::kInt), own = range(2 * r, 2 * r + 2, at::kInt);
    group->all_gather(all, own)->wait();
    const at::Tensor in_place = at::zeros({3}, at::kInt);
    in_place[r] = r + 1;
    group->all_gather(in_place, in_place.narrow(0, r, 1))->wait();
    const at::Tensor told = full({3}, r, at::kBool);
    group->broadcast(told, 2)->wait();
    const at::Tensor out = at::empty({3}, at::kShort), in = range(10 * r, 10 * r + 3, at::kShort);
    group->all_to_all(out, in)->wait();
    // Rank r sends j rows to rank j.
    const at::Tensor rows_out = at::empty({3 * r, 2}), rows_in = full({3, 2}, r);
    group->all_to_all_v(rows_out, rows_in, std::vector<int64_t>(3, r), {0, 1, 2})->wait();
    group->barrier();
    EXPECT_TRUE(all.equal(range(0, 6, at::kInt)));
    EXPECT_TRUE(in_place.equal(range(1, 4, at::kInt)));
    EXPECT_TRUE(told.all().item<bool>());
    EXPECT_TRUE(out.equal(range(0, 3, at::kShort) * 10 + r)) << out;
    for (int64_t row = 0; row < 3 * r; ++row) EXPECT_EQ(rows_out[row][1].item<int64_t>(), row / r);
  });
  EXPECT_EQ(fake.violations(), "");
}

TEST(NcclGroup, TransfersAreMatchedByTagWithinACall) {
  FakeNccl fake;
  run_nccl(2, fake, [](Group group, Group) {
    const int peer = 1 - group->rank();
    const at::Tensor a = full({2}, 1), b = full({2}, 2), to_a = at::zeros({2}), to_b = at::zeros({2});
    std::vector<P2pOp> ops = {{P2pKind::kSend, peer, a, 5},
                              {P2pKind::kSend, peer, b, 4},
                              {P2pKind::kRecv, peer, to_a, 5},
                              {P2pKind::kRecv, peer, to_b, 4}};
    if (peer == 0) std::swap(ops[2], ops[3]);
    ops.push_back({P2pKind::kSend, peer, at::empty({0}), 9});
    group->send_recv(ops)->wait();
    group->barrier();
    EXPECT_TRUE(to_a.equal(a));
    EXPECT_TRUE(to_b.equal(b));
  });
  EXPECT_EQ(fake.violations(), "");
}

TEST(NcclGroup, CallsCarryPointersCountsTypesPeersAndRoots) {
  FakeNccl fake;
  run_nccl(2, fake, [&](Group group, Group) {
    if (group->rank() == 0) fake.forget_calls();
    const at::Tensor x = at::ones({4}, at::kBFloat16), y = at::ones({2}, at::kBFloat16);
    const at::Tensor rows = at::ones({3, 2}, at::kHalf),
                     received = at::ones({group->rank() == 0 ? 4 : 2, 2}, at::kHalf);
    group->barrier();
    group->all_reduce(x, {.op = ReduceOp::kMax})->wait();
    group->reduce_scatter(y, x)->wait();
    group->all_gather(x, y)->wait();
    group->broadcast(x, 1)->wait();
    group->all_to_all_v(received, rows, std::vector<int64_t>(2, received.size(0) / 2), {2, 1})->wait();
    group->barrier();
    if (group->rank() != 0) return;
    const auto one = [&](const char* name) {
      const auto calls = fake.calls(name, 0);
      return calls.empty() ? FakeCall{} : calls.size() == 3 ? calls[1] : calls.front();
    };
    EXPECT_EQ(one("all_reduce").send, x.data_ptr());
    EXPECT_EQ(one("all_reduce").recv, x.data_ptr());
    EXPECT_EQ(one("all_reduce").count, 4u);
    EXPECT_EQ(one("all_reduce").type, NcclType::kBFloat16);
    EXPECT_EQ(one("all_reduce").op, ReduceOp::kMax);
    EXPECT_EQ(one("reduce_scatter").send, x.data_ptr());
    EXPECT_EQ(one("reduce_scatter").recv, y.data_ptr());
    EXPECT_EQ(one("reduce_scatter").count, 2u);
    EXPECT_EQ(one("reduce_scatter").type, NcclType::kBFloat16);
    EXPECT_EQ(one("all_gather").send, y.data_ptr());
    EXPECT_EQ(one("all_gather").recv, x.data_ptr());
    EXPECT_EQ(one("all_gather").count, 4u);  // bytes
    EXPECT_EQ(one("all_gather").type, NcclType::kUint8);
    EXPECT_EQ(one("broadcast").peer, 1);
    EXPECT_EQ(one("broadcast").count, 8u);
    const auto sends = fake.calls("send", 0), receives = fake.calls("recv", 0);
    ASSERT_EQ(sends.size(), 2u);
    ASSERT_EQ(receives.size(), 2u);
    EXPECT_EQ(sends[0].peer, 0);
    EXPECT_EQ(sends[0].count, 8u);
    EXPECT_EQ(sends[1].peer, 1);
    EXPECT_EQ(sends[1].count, 4u);
    EXPECT_EQ(sends[1].send, static_cast<char*>(rows.data_ptr()) + 8);
    EXPECT_EQ(receives[1].peer, 1);
    EXPECT_EQ(receives[1].count, 8u);
    EXPECT_EQ(receives[1].recv, static_cast<char*>(received.data_ptr()) + 8);
    for (const FakeCall& call : sends) EXPECT_EQ(call.stream, one("all_reduce").stream);
  });
  EXPECT_EQ(fake.violations(), "");
}

TEST(NcclGroup, NoElementsSendNothing) {
  FakeNccl fake;
  run_nccl(2, fake, [&](Group group, Group host) {
    group->barrier();
    host->barrier();
    if (group->rank() == 0) fake.forget_calls();
    host->barrier();
    const at::Tensor none = at::empty({0}), no_rows = at::empty({0, 3});
    group->all_reduce(none, {.scale = 2.0})->wait();
    group->all_gather(none, at::empty({0}))->wait();
    group->reduce_scatter(none, at::empty({0}))->wait();
    group->broadcast(none, 0)->wait();
    group->all_to_all_v(no_rows, at::empty({0, 3}), {0, 0}, {0, 0})->wait();
    group->send_recv({})->wait();
    EXPECT_TRUE(fake.calls("", group->rank()).empty());
  });
}

TEST(NcclGroup, AScaleIsAppliedBehindTheReduction) {
  FakeNccl fake;
  run_nccl(2, fake, [](Group group, Group) {
    const at::Tensor sum = full({3}, 3.0), part = at::empty({1}), whole = full({2}, 5.0);
    const auto reduced = group->all_reduce(sum, {.scale = 0.5});
    const auto scattered = group->reduce_scatter(part, whole, {.scale = 0.1});
    reduced->wait();
    scattered->wait();
    group->barrier();
    EXPECT_TRUE(sum.equal(full({3}, 3.0))) << sum;
    EXPECT_TRUE(part.equal(full({1}, 10.0).mul_(0.1))) << part;
    EXPECT_TRUE(whole.equal(full({2}, 5.0)));
  });
  EXPECT_EQ(fake.violations(), "");
}

TEST(NcclGroup, CallsInProgressAreWaitedFor) {
  FakeNccl fake;
  fake.init_polls = 3;
  fake.finalize_polls = 3;
  run_nccl(2, fake, [&](Group group, Group) {
    fake.call_polls = 4;
    for (int i = 0; i < 3; ++i) {
      const at::Tensor x = at::ones({2}), out = at::empty({2});
      group->all_reduce(x)->wait();
      group->all_to_all(out, x)->wait();
      group->barrier();
      EXPECT_TRUE(out.equal(full({2}, 2.0))) << out;
    }
    group->barrier();
    fake.call_polls = 0;
  });
  EXPECT_EQ(fake.violations(), "");
  EXPECT_EQ(fake.open_comms(), 0);
}

TEST(NcclGroup, TensorsOnTheCpuGoThroughTheHost) {
  FakeNccl fake(at::kMeta);
  run_nccl(2, fake, [&](Group group, Group) {
    const auto meta = at::TensorOptions().device(at::kMeta);
    const at::Tensor header = full({3}, group->rank() + 1, at::kLong), all = at::empty({2}, at::kDouble);
    const at::Tensor own = full({1}, group->rank(), at::kDouble);
    group->all_reduce(at::empty({8}, meta))->wait();
    group->all_reduce(header)->wait();
    group->all_gather(all, own)->wait();
    const at::Tensor part = at::empty({1}), out = at::empty({2}), told = full({1}, group->rank());
    group->reduce_scatter(part, at::ones({2}), {.scale = 0.5})->wait();
    group->all_to_all(out, full({2}, group->rank()))->wait();
    group->broadcast(told, 1)->wait();
    const int peer = 1 - group->rank();
    const at::Tensor got = at::zeros({1});
    group->send_recv({{P2pKind::kSend, peer, told}, {P2pKind::kRecv, peer, got}})->wait();
    group->broadcast(at::empty({4}, meta), 1)->wait();
    EXPECT_TRUE(header.equal(full({3}, 3, at::kLong)));
    EXPECT_TRUE(all.equal(range(0, 2, at::kDouble)));
    EXPECT_EQ(part.item<float>(), 1.0F);
    EXPECT_TRUE(out.equal(range(0, 2)));
    EXPECT_EQ(told.item<int64_t>(), 1);
    EXPECT_EQ(got.item<float>(), 1.0F);
    EXPECT_EQ(fake.calls("all_reduce", group->rank()).size(), 2u);  // one to warm up
    EXPECT_EQ(fake.calls("broadcast", group->rank()).size(), 1u);
    EXPECT_TRUE(fake.calls("all_gather").empty());
    EXPECT_THROW(group->send_recv(
                     {{P2pKind::kSend, peer, at::empty({1})}, {P2pKind::kRecv, peer, at::empty({1}, meta)}}),
                 ShapeError);
  });
  EXPECT_EQ(fake.violations(), "");
}

TEST(NcclGroup, AGroupOfOneCopiesWithoutNccl) {
  FakeNccl fake;
  NcclOptions options = quick_nccl(0);
  options.group_of_one = GroupOfOne::kCopies;
  const auto group = make_nccl_group(GlooCommunicator::create(nullptr, {}), options, fake.backend());
  const at::Tensor x = range(1, 4), out = at::empty({3});
  group->all_reduce(x, {.scale = 2.0})->wait();
  group->all_gather(out, x)->wait();
  EXPECT_TRUE(out.equal(range(1, 4) * 2));
  group->reduce_scatter(out, x, {.scale = 0.5})->wait();
  EXPECT_TRUE(out.equal(range(1, 4)));
  group->all_to_all(out, x)->wait();
  EXPECT_TRUE(out.equal(x));
  group->broadcast(x, 0)->wait();
  group->barrier();
  const auto own = group->subgroup({0}, "tp");
  own->all_reduce(x)->wait();
  EXPECT_TRUE(fake.calls().empty());
  group->abort("enough");
  EXPECT_THROW(own->all_reduce(x), CommError);
}

TEST(NcclGroup, AGroupOfOneCanUseNccl) {
  FakeNccl fake;
  {
    const auto group = make_nccl_group(GlooCommunicator::create(nullptr, {}), quick_nccl(0), fake.backend());
    const at::Tensor x = range(1, 4), out = at::empty({3});
    group->all_reduce(x, {.scale = 2.0})->wait();
    group->all_to_all(out, x)->wait();
    group->barrier();
    EXPECT_TRUE(out.equal(range(1, 4) * 2));
    EXPECT_EQ(fake.calls("send").size(), 1u);
  }
  EXPECT_EQ(fake.violations(), "");
  EXPECT_EQ(fake.open_comms(), 0);
}

TEST(NcclGroup, SubgroupsHaveCommunicatorsAndStreamsOfTheirOwn) {
  FakeNccl fake;
  run_nccl(3, fake, [&](Group group, Group host) {
    const int r = group->rank();
    const auto outer = group->subgroup(r == 1 ? std::vector<int>{} : std::vector<int>{2, 0}, "outer");
    const auto all = group->subgroup({0, 1, 2}, "all");
    const auto second = make_nccl_group(host, quick_nccl(r), fake.backend());
    EXPECT_EQ(outer == nullptr, r == 1);
    const at::Tensor x = full({1}, r), y = full({1}, r), z = full({1}, r), h = full({1}, r);
    if (outer) {
      EXPECT_EQ(outer->rank(), r == 2 ? 0 : 1);
      EXPECT_EQ(outer->name(), "outer");
      outer->all_reduce(x)->wait();
      outer->barrier();
      EXPECT_EQ(x.item<float>(), 2.0F);
    }
    all->all_reduce(y)->wait();
    second->all_reduce(z)->wait();
    all->barrier();
    second->barrier();
    host->all_reduce(h)->wait();
    for (const at::Tensor& sum : {y, z, h}) EXPECT_EQ(sum.item<float>(), 3.0F);
    std::set<DeviceStream> streams;
    for (const FakeCall& call : fake.calls("all_reduce")) streams.insert(call.stream);
    group->barrier();
    EXPECT_GE(streams.size(), 3u);
  });
  EXPECT_EQ(fake.calls("init").size(), 3u + 2u + 3u + 3u);
  EXPECT_EQ(fake.violations(), "");
  EXPECT_EQ(fake.open_comms(), 0);
  EXPECT_EQ(fake.streams().live_streams(), 0);
  EXPECT_EQ(fake.streams().live_events(), 0);
}

TEST(NcclGroup, TakesACallersCommunicatorAndStreamAndGivesThemBack) {
  FakeNccl fake;
  const auto backend = fake.backend();
  NcclOptions options = quick_nccl(0);
  options.communicator = fake.make_comm(1, 0);
  const DeviceStream stream = fake.streams().make_stream();
  options.stream = stream;
  {
    const auto group = make_nccl_group(GlooCommunicator::create(nullptr, {}), options, backend);
    const at::Tensor x = at::ones({2});
    group->all_reduce(x, {.scale = 3.0})->wait();
    group->barrier();
    EXPECT_EQ(x[0].item<float>(), 3.0F);
    for (const FakeCall& call : fake.calls("all_reduce")) EXPECT_EQ(call.stream, stream);
    EXPECT_TRUE(fake.calls("init").empty());
  }
  EXPECT_TRUE(fake.calls("finalize").empty());
  EXPECT_EQ(fake.open_comms(), 1);
  EXPECT_EQ(fake.streams().live_streams(), 1);
  options.communicator = fake.make_comm(2, 1);
  try {
    make_nccl_group(GlooCommunicator::create(nullptr, {}), options, backend);
    FAIL() << "another shape must be refused";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("is rank 1 of 2, and this is rank 0 of 1"), std::string::npos);
  }
  EXPECT_EQ(fake.violations(), "");
}

TEST(NcclGroup, RefusesWhatItCannotStandOn) {
  FakeNccl fake;
  EXPECT_THROW(make_nccl_group(nullptr, {}, fake.backend()), ConfigError);
  const Group recorded = make_recorded_communicator(GlooCommunicator::create(nullptr, {}), CommLog::create());
  EXPECT_THROW(make_nccl_group(recorded, {}, fake.backend()), ConfigError);
  NcclOptions options;
  options.watch_every = std::chrono::milliseconds(0);
  EXPECT_THROW(make_nccl_group(GlooCommunicator::create(nullptr, {}), options, fake.backend()), ConfigError);
}

}  // namespace
}  // namespace apus::comm
