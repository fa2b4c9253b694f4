#include "apus/comm/gloo_communicator.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "tests/support/rank_threads.h"

namespace apus::comm {
namespace {

using testing::run_ranks;
using Group = std::shared_ptr<Communicator>;

/// Expects equal values, with the rank in the message.
void expect_equal(const at::Tensor& got, const at::Tensor& expected, const Group& group) {
  EXPECT_TRUE(at::equal(got, expected)) << "rank " << group->rank() << " got\n"
                                        << got << "\nexpected\n"
                                        << expected;
}

/// Every collective in one world and dtype, against its definition on small integers (exact in every dtype).
class GlooCollectives : public ::testing::TestWithParam<std::tuple<int, at::ScalarType>> {
 protected:
  int size() const { return std::get<0>(GetParam()); }
  at::TensorOptions options() const { return at::TensorOptions().dtype(std::get<1>(GetParam())); }
  /// 1 + 2 + ... + n
  int64_t triangle() const { return size() * (size() + 1) / 2; }
};

TEST_P(GlooCollectives, AllReduce) {
  run_ranks(size(), [&](Group group) {
    const at::Tensor tensor = at::full({3, 2}, group->rank() + 1, options());
    group->all_reduce(tensor)->wait();
    expect_equal(tensor, at::full({3, 2}, triangle(), options()), group);
    const at::Tensor largest = at::full({1}, group->rank() + 1, options());
    group->all_reduce(largest, {.op = ReduceOp::kMax})->wait();
    expect_equal(largest, at::full({1}, size(), options()), group);
    const at::Tensor smallest = at::full({1}, group->rank() + 1, options());
    group->all_reduce(smallest, {.op = ReduceOp::kMin})->wait();
    expect_equal(smallest, at::full({1}, 1, options()), group);
  });
}

TEST_P(GlooCollectives, ReduceScatterAndAllGather) {
  run_ranks(size(), [&](Group group) {
    const at::Tensor in = at::arange(2 * size(), options()).mul(group->rank() + 1);
    const at::Tensor out = at::zeros({2}, options());
    group->reduce_scatter(out, in)->wait();
    const int r = group->rank();
    expect_equal(out, at::arange(2 * r, 2 * r + 2, options()).mul(triangle()), group);
    const at::Tensor whole = at::zeros({size(), 2}, options());
    group->all_gather(whole, out)->wait();
    expect_equal(whole.view({-1}), at::arange(2 * size(), options()).mul(triangle()), group);
  });
}

TEST_P(GlooCollectives, AllGatherInPlace) {
  run_ranks(size(), [&](Group group) {
    const at::Tensor whole = at::zeros({2 * size()}, options());
    whole.narrow(0, 2 * group->rank(), 2).fill_(group->rank() + 1);
    group->all_gather(whole, whole.narrow(0, 2 * group->rank(), 2))->wait();
    for (int r = 0; r < size(); ++r) {
      expect_equal(whole.narrow(0, 2 * r, 2), at::full({2}, r + 1, options()), group);
    }
  });
}

TEST_P(GlooCollectives, BroadcastFromEveryRoot) {
  run_ranks(size(), [&](Group group) {
    for (int root = 0; root < size(); ++root) {
      const at::Tensor tensor = at::full({5}, 10 * group->rank() + root, options());
      group->broadcast(tensor, root)->wait();
      expect_equal(tensor, at::full({5}, 11 * root, options()), group);
    }
  });
}

TEST_P(GlooCollectives, AllToAll) {
  run_ranks(size(), [&](Group group) {
    at::Tensor in = at::empty({size(), 2}, options());
    for (int to = 0; to < size(); ++to) in[to].fill_(10 * group->rank() + to);
    const at::Tensor out = at::zeros({size(), 2}, options());
    group->all_to_all(out, in)->wait();
    for (int from = 0; from < size(); ++from) {
      expect_equal(out[from], at::full({2}, 10 * from + group->rank(), options()), group);
    }
  });
}

TEST_P(GlooCollectives, AllToAllVWithEmptyParts) {
  run_ranks(size(), [&](Group group) {
    // Rank r sends r * to rows of 3 to `to`: rank 0 sends nothing and gets nothing.
    std::vector<int64_t> in_splits;
    std::vector<int64_t> out_splits;
    for (int other = 0; other < size(); ++other) {
      in_splits.push_back(group->rank() * other);
      out_splits.push_back(other * group->rank());
    }
    int64_t rows = 0;
    for (int64_t split : in_splits) rows += split;
    const at::Tensor in = at::full({rows, 3}, group->rank(), options());
    const at::Tensor out = at::zeros({rows, 3}, options());
    group->all_to_all_v(out, in, out_splits, in_splits)->wait();
    int64_t row = 0;
    for (int from = 0; from < size(); ++from) {
      for (int64_t i = 0; i < out_splits[from]; ++i)
        expect_equal(out[row++], at::full({3}, from, options()), group);
    }
  });
}

TEST_P(GlooCollectives, SendRecvRing) {
  if (size() == 1) {
    run_ranks(1, [](Group group) { EXPECT_TRUE(group->send_recv({})->is_completed()); });
    return;
  }
  run_ranks(size(), [&](Group group) {
    const int next = (group->rank() + 1) % size();
    const int previous = (group->rank() + size() - 1) % size();
    const at::Tensor mine = at::full({4}, group->rank() + 1, options());
    const at::Tensor theirs = at::zeros({4}, options());
    const at::Tensor second = at::zeros({1}, options());
    group
        ->send_recv({{.kind = P2pKind::kSend, .peer = next, .tensor = mine},
                     {.kind = P2pKind::kSend, .peer = next, .tensor = at::full({1}, 9, options()), .tag = 1},
                     {.kind = P2pKind::kRecv, .peer = previous, .tensor = second, .tag = 1},
                     {.kind = P2pKind::kRecv, .peer = previous, .tensor = theirs}})
        ->wait();
    expect_equal(theirs, at::full({4}, previous + 1, options()), group);
    expect_equal(second, at::full({1}, 9, options()), group);
  });
}

TEST_P(GlooCollectives, EmptyTensorsPass) {
  run_ranks(size(), [&](Group group) {
    const at::Tensor none = at::empty({0}, options());
    group->all_reduce(none)->wait();
    group->all_gather(none, at::empty({0}, options()))->wait();
    group->reduce_scatter(none, at::empty({0}, options()))->wait();
    group->broadcast(none, 0)->wait();
    group->all_to_all(none, at::empty({0}, options()))->wait();
    group->barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, GlooCollectives,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::Values(at::kFloat, at::kBFloat16, at::kDouble,
                                                              at::kLong, at::kByte)),
                         [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) +
                                  at::toString(std::get<1>(info.param));
                         });

TEST(GlooCommunicator, TheScaleComesAfterTheSum) {
  for (const int size : {1, 3}) {
    run_ranks(size, [&](Group group) {
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
        const at::Tensor tensor = at::full({2}, group->rank() + 1, dtype);
        group->all_reduce(tensor, {.scale = 0.5})->wait();
        expect_equal(tensor, at::full({2}, size == 1 ? 0.5 : 3.0, dtype), group);
        const at::Tensor part = at::zeros({1}, dtype);
        group->reduce_scatter(part, at::full({size}, 4.0, dtype), {.scale = 0.25})->wait();
        expect_equal(part, at::full({1}, size, dtype), group);
      }
    });
  }
}

TEST(GlooCommunicator, Bfloat16IsSummedInFp32AndRoundedOnce) {
  run_ranks(4, [](Group group) {
    // 256 + 1 + 1 + 1: every step in bfloat16 would stay at 256.
    const double mine = group->rank() == 0 ? 256.0 : 1.0;
    const at::Tensor tensor = at::full({3}, mine, at::kBFloat16);
    group->all_reduce(tensor)->wait();
    expect_equal(tensor, at::full({3}, 260.0, at::kBFloat16), group);  // 259 rounds to 260
    const at::Tensor out = at::zeros({1}, at::kBFloat16);
    group->reduce_scatter(out, at::full({4}, mine, at::kBFloat16))->wait();
    expect_equal(out, at::full({1}, 260.0, at::kBFloat16), group);
  });
}

/// The bits of a reduce_scatter do not depend on where a buffer is cut.
TEST(GlooCommunicator, ReduceScatterAddsInRankOrderHoweverTheBufferIsCut) {
  run_ranks(4, [](Group group) {
    const double values[] = {1e8, -1e8, 1.0, 0.5};  // in rank order: 1.5; otherwise the small ones can vanish
    for (const int64_t part : {1, 7, 64, 1000}) {
      const at::Tensor out = at::zeros({part});
      group->reduce_scatter(out, at::full({4 * part}, values[group->rank()]))->wait();
      expect_equal(out, at::full({part}, 1.5F), group);
    }
  });
}

TEST(GlooCommunicator, WorksMayBeWaitedForLateAndInAnyOrderOrNotAtAll) {
  run_ranks(3, [](Group group) {
    std::vector<at::Tensor> tensors;
    std::vector<std::shared_ptr<Work>> works;
    for (int i = 0; i < 8; ++i) {
      tensors.push_back(at::full({100}, i));
      works.push_back(group->all_reduce(tensors.back()));
      group->all_reduce(at::full({50}, 1.0F));  // nobody keeps tensor or work
    }
    for (int i = 7; i >= 0; --i) {
      works[i]->wait();
      works[i]->wait();
      EXPECT_TRUE(works[i]->is_completed());
      expect_equal(tensors[i], at::full({100}, 3 * i), group);
    }
    group->barrier();
  });
}

TEST(GlooCommunicator, GivesTensorsUpWithTheWaitAndNotWithTheNextOperation) {
  // A whole gradient, and what was received for it, stayed allocated through the next micro-batch.
  testing::run_ranks(3, [](std::shared_ptr<Communicator> world) {
    const at::Tensor in = at::full({9}, 1.0), out = at::empty({3}), all = at::empty({9});
    world->reduce_scatter(out, in)->wait();
    world->all_gather(all, out)->wait();
    world->all_reduce(all)->wait();
    for (const at::Tensor& tensor : {in, out, all}) EXPECT_EQ(tensor.storage().use_count(), 1U);
    EXPECT_EQ(all[0].item<double>(), 9.0);
  });
}

TEST(GlooCommunicator, SplitOrdersByKeyAndNegativeColorsGetNothing) {
  run_ranks(4, [](Group group) {
    const int r = group->rank();
    const auto half = group->split(r == 3 ? -1 : r % 2, -r, "half");
    if (r == 3) {
      EXPECT_EQ(half, nullptr);
      return;
    }
    EXPECT_EQ(half->size(), r % 2 == 0 ? 2 : 1);
    EXPECT_EQ(half->rank(), r == 0 ? 1 : 0);  // keys 0 and -2: rank 2 comes first
    EXPECT_EQ(half->name(), "half");
    const at::Tensor tensor = at::full({1}, r);
    half->all_reduce(tensor)->wait();
    EXPECT_EQ(tensor.item<int64_t>(), r % 2 == 0 ? 2 : 1);
  });
}

TEST(GlooCommunicator, SubgroupsOfSubgroupsWork) {
  run_ranks(4, [](Group group) {
    const int r = group->rank();
    const auto pair = group->subgroup(r < 2 ? std::vector<int>{1, 0} : std::vector<int>{2, 3}, "pair");
    EXPECT_EQ(pair->rank(), r < 2 ? 1 - r : r - 2);
    const auto self = pair->subgroup({pair->rank()}, "self");
    const at::Tensor tensor = at::full({2}, r);
    self->all_reduce(tensor, {.scale = 1.0})->wait();
    EXPECT_EQ(tensor[0].item<int64_t>(), r);
    pair->broadcast(tensor, 0)->wait();
    EXPECT_EQ(tensor[0].item<int64_t>(), r < 2 ? 1 : 2);
  });
}

TEST(GlooCommunicator, TwoGroupsOfOneNameOnOneStoreAreApart) {
  const auto store = make_hash_store();
  const auto device = GlooDevice::create();
  testing::run_threads(2, [&](int rank) {
    const auto one = GlooCommunicator::create(store, {.rank = rank, .size = 2, .device = device});
    const auto two = GlooCommunicator::create(store, {.rank = rank, .size = 2, .device = device});
    const at::Tensor a = at::full({1}, 1.0F);
    const auto first = one->all_reduce(a);
    const at::Tensor b = at::full({1}, 2.0F);
    two->all_reduce(b)->wait();
    first->wait();
    EXPECT_EQ(a.item<float>(), 2.0F);
    EXPECT_EQ(b.item<float>(), 4.0F);
  });
}

TEST(GlooCommunicator, OneOfOneNeedsNeitherStoreNorDevice) {
  const auto group = GlooCommunicator::create(nullptr, {});
  const at::Tensor tensor = at::full({1}, 2.0F);
  group->all_reduce(tensor, {.scale = 0.5})->wait();
  EXPECT_EQ(tensor.item<float>(), 1.0F);
  group->abort("done");
  EXPECT_THROW(group->all_reduce(tensor), CommError);
}

TEST(GlooCommunicator, OptionsThatMakeNoSenseAreRefused) {
  EXPECT_THROW(GlooCommunicator::create(make_hash_store(), {.rank = 2, .size = 2}), ConfigError);
  EXPECT_THROW(GlooCommunicator::create(nullptr, {.rank = 0, .size = 2}), ConfigError);
  EXPECT_THROW(GlooDevice::create("203.0.113.1"), CommError);
  EXPECT_THROW(GlooDevice::create_for_interface("nosuch0"), CommError);
}

}  // namespace
}  // namespace apus::comm
