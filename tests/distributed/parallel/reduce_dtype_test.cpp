// Gradients that travel in bf16 are summed over ranks in fp32, on Gloo and on NCCL (over a fake of it).
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <set>

#include "apus/comm/decorators.h"
#include "tests/support/chosen_gradients.h"
#include "tests/support/late_communicator.h"
#include "tests/support/nccl_ranks.h"
#include "tests/support/patient_communicator.h"
#include "tests/support/tensor_checks.h"

namespace apus::parallel {
namespace {

using namespace apus::testing;

constexpr MicroBatchPlace kLast = MicroBatchPlace::kLast;
constexpr double kBf16 = 1.0 / 256;  // rounding to bf16, relative
constexpr double kFp32 = 1.0 / (1 << 24);

enum class Transport { kGloo, kNccl };

using Body = std::function<void(std::shared_ptr<comm::Communicator> world)>;

void on_ranks(Transport transport, int world, const Body& body) {
  if (transport == Transport::kGloo) return run_ranks(world, body);
  FakeNccl fake;
  run_nccl(world, fake, [&](std::shared_ptr<comm::Communicator> group, std::shared_ptr<comm::Communicator>) {
    body(std::make_shared<PatientCommunicator>(std::move(group)));
  });
  EXPECT_EQ(fake.violations(), "");
}

/// What each rank adds to the step's gradient of each leaf: [rank][leaf].
using Shares = std::vector<std::vector<at::Tensor>>;

std::vector<at::Tensor> leaves() {
  return {filled_leaf({37, 29}, 1.0), filled_leaf({5}, 1.0), filled_leaf({1100}, 1.0)};
}

Shares random_shares(int world) {
  Shares shares;
  for (int rank = 0; rank < world; ++rank) {
    std::vector<at::Tensor> own;
    for (const at::Tensor& leaf : leaves())
      own.push_back(random_tensor(leaf.sizes(), 100 * rank + own.size()));
    shares.push_back(std::move(own));
  }
  return shares;
}

/// Sums of leaf `leaf` in fp64: exact, of what the ranks have and of their magnitudes.
std::pair<at::Tensor, at::Tensor> exact_sums(const Shares& shares, size_t leaf) {
  at::Tensor sum = at::zeros(shares[0][leaf].sizes(), at::kDouble), magnitude = sum.clone();
  for (const auto& own : shares) {
    sum += own[leaf].to(at::kDouble);
    magnitude += own[leaf].to(at::kDouble).abs();
  }
  return {sum, magnitude};
}

/// Sum of leaf `leaf`: each rank's share rounded to bf16 once, added in fp32 in rank order.
at::Tensor sum_in_rank_order(const Shares& shares, size_t leaf) {
  at::Tensor sum = at::zeros(shares[0][leaf].sizes());
  for (const auto& own : shares) sum += own[leaf].to(at::kBFloat16).to(at::kFloat);
  return sum;
}

/// The step's gradients that a policy makes of the shares, which travel in bf16.
std::map<std::string, at::Tensor> reduced(const ShardPolicy& policy, const DataParallel& ranks,
                                          const Shares& shares, ShardedModelOptions options = {}) {
  options.policy = policy;
  options.reduce_dtype = at::kBFloat16;
  options.bucket_elements = 1;
  ChosenGradients job(leaves(), ranks, options);
  job.micro_batch(shares[static_cast<size_t>(ranks.dp->rank())], kLast);
  return step_gradients(job.engine());
}

class ReduceInBfloat16 : public ::testing::TestWithParam<Transport> {
 protected:
  /// Every policy of a world, and what it makes of each of some shares; rank 0's.
  void expect_sums(int world, const std::vector<Shares>& turns,
                   const std::function<void(const ShardPolicy&, size_t leaf, const at::Tensor&)>& check) {
    for (const ShardPolicy& policy : policies_for(world)) {
      on_ranks(GetParam(), world, [&](std::shared_ptr<comm::Communicator> group) {
        const bool checks = group->rank() == 0;
        const comm::DeviceMesh mesh(std::move(group), policy.mesh());
        for (const Shares& shares : turns) {
          const auto found = reduced(policy, DataParallel::of(mesh), shares);
          for (size_t leaf = 0; checks && leaf < found.size(); ++leaf)
            check(policy, leaf, found.at("w" + std::to_string(leaf)));
        }
      });
    }
  }
};

TEST_P(ReduceInBfloat16, AddsInRankOrderInFp32WhatEachRankHasRoundedOnce) {
  for (const int world : {2, 3, 4}) {
    const Shares shares = random_shares(world);
    expect_sums(world, {shares}, [&](const ShardPolicy& policy, size_t leaf, const at::Tensor& found) {
      const std::string what = policy.name + " on " + std::to_string(world) + " ranks";
      const auto [sum, magnitude] = exact_sums(shares, leaf);
      at::Tensor bound = magnitude * (kBf16 + 2 * world * kFp32);
      if (!policy.opt_shard) bound += kBf16 * (sum.abs() + bound);  // what all ranks update with
      EXPECT_TRUE((found.to(at::kDouble) - sum).abs().le(bound).all().item<bool>()) << what;
      if (policy.replicate > 1) return;  // shards first, then replicas
      at::Tensor wanted = sum_in_rank_order(shares, leaf);
      if (!policy.opt_shard) wanted = wanted.to(at::kBFloat16).to(at::kFloat);
      EXPECT_TRUE(found.equal(wanted)) << what;
    });
  }
}

TEST_P(ReduceInBfloat16, LosesNothingThatFp32HoldsInWhateverOrderRanksStand) {
  // bf16 numbers whose sums no bf16 holds: adding them up in bf16 loses the hundredths.
  Shares shares;
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<at::Tensor> own;
    for (const at::Tensor& leaf : leaves())
      own.push_back(at::full(leaf.sizes(), rank == 1 ? 64.0 : (1.0 + rank) / 128, at::kFloat));
    shares.push_back(std::move(own));
  }
  const double wanted = 64.0 + (1.0 + 3.0 + 4.0) / 128;
  Shares reversed = shares;
  std::ranges::reverse(reversed);
  expect_sums(4, {shares, reversed}, [&](const ShardPolicy& policy, size_t, const at::Tensor& found) {
    if (!policy.opt_shard) return;  // rounded for the journey to the other ranks
    EXPECT_TRUE(found.eq(wanted).all().item<bool>()) << policy.name;
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, ReduceInBfloat16, ::testing::Values(Transport::kGloo, Transport::kNccl));

TEST(Bfloat16Gradients, ReadsNothingBeforeItHasCome) {
  const Shares shares = random_shares(3);
  for (const ShardPolicy& policy : {ShardPolicy(Ddp()), ShardPolicy(Zero1()), ShardPolicy(Zero2())}) {
    for (const Late late : {Late::kStart, Late::kResult}) {
      for (const bool overlap : {false, true}) {
        run_ranks(3, [&](std::shared_ptr<comm::Communicator> plain) {
          LateCommunicator group(std::move(plain), late);
          const auto found =
              reduced(policy, DataParallel::one_axis(group), shares, {.overlap_comm = overlap});
          for (size_t leaf = 0; leaf < found.size(); ++leaf) {
            at::Tensor wanted = sum_in_rank_order(shares, leaf);
            if (!policy.opt_shard) wanted = wanted.to(at::kBFloat16).to(at::kFloat);
            EXPECT_TRUE(found.at("w" + std::to_string(leaf)).equal(wanted)) << policy.name;
          }
        });
      }
    }
  }
}

TEST(Bfloat16Gradients, LeavesNoSumToNccl) {
  // Its ncclSum of bf16 rounds at every rank that a sum passes. Replicas of bf16 accumulators add in fp32.
  FakeNccl fake;
  const Shares shares = random_shares(4);
  for (const ShardPolicy& policy : policies_for(4)) {
    run_nccl(4, fake, [&](std::shared_ptr<comm::Communicator> group, std::shared_ptr<comm::Communicator>) {
      const auto world = std::make_shared<PatientCommunicator>(std::move(group));
      const comm::DeviceMesh mesh(world, policy.mesh());
      reduced(policy, DataParallel::of(mesh), shares, {.grad_accum_dtype = at::kBFloat16});
    });
  }
  EXPECT_FALSE(fake.calls("send").empty());
  EXPECT_TRUE(fake.calls("reduce_scatter").empty());
  for (const FakeCall& call : fake.calls("all_reduce")) EXPECT_NE(call.type, comm::NcclType::kBFloat16);
  EXPECT_EQ(fake.violations(), "");
}

TEST(Bfloat16Gradients, CallsNcclForPartsAndThenForTheGatherOfTheirSum) {
  FakeNccl fake;
  run_nccl(2, fake, [&](std::shared_ptr<comm::Communicator> group, std::shared_ptr<comm::Communicator>) {
    PatientCommunicator world(std::move(group));
    ChosenGradients job({filled_leaf({3000}, 1.0)}, DataParallel::one_axis(world),
                        {.policy = Ddp(), .reduce_dtype = at::kBFloat16});
    world.barrier();
    if (world.rank() == 0) fake.forget_calls();
    world.barrier();
    job.micro_batch(1.0, kLast);
    world.barrier();
  });
  std::vector<std::string> names;
  size_t sent = 0;
  for (const FakeCall& call : fake.calls("", 0)) {
    if (call.name == "all_reduce" || call.name == "finalize" || call.name == "destroy") continue;  // barriers
    names.push_back(call.name);
    if (call.name == "send") sent += call.count;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"send", "recv", "send", "recv", "all_gather"}));
  EXPECT_EQ(sent, 2U * 4096) << "bytes of the padded gradient in bf16";
  EXPECT_EQ(fake.violations(), "");
}

/// A step's records with reductions in a group of their own, and its gradients.
std::pair<std::vector<comm::OpRecord>, std::map<std::string, at::Tensor>> step_with_two_groups(
    const ShardPolicy& policy, std::shared_ptr<comm::Communicator> world, const Shares& shares,
    const ShardedModelOptions& options) {
  const auto log = comm::CommLog::create();
  const auto recorded = comm::make_recorded_communicator(std::move(world), log);
  DataParallel ranks = DataParallel::one_axis(*recorded);
  const auto second = second_shard_group(ranks);
  ranks.reduce = second.get();
  const auto gradients = reduced(policy, ranks, shares, options);
  return {log->records(), gradients};
}

TEST(TwoGroups, ReduceInTheSecondAndGatherInTheFirst) {
  const Shares shares = random_shares(3);
  for (const Transport transport : {Transport::kGloo, Transport::kNccl}) {
    for (const bool deterministic : {false, true}) {
      on_ranks(transport, 3, [&](std::shared_ptr<comm::Communicator> world) {
        const auto [records, found] =
            step_with_two_groups(Zero3(), world, shares, {.deterministic = deterministic});
        for (const comm::OpRecord& record : records) {
          const bool sums = record.info.kind == comm::OpKind::kAllToAll;
          EXPECT_EQ(record.group, sums ? "world_reduce" : "world") << record.info.text();
        }
        for (size_t leaf = 0; leaf < found.size(); ++leaf)
          EXPECT_TRUE(found.at("w" + std::to_string(leaf)).equal(sum_in_rank_order(shares, leaf)));
      });
    }
  }
}

TEST(TwoGroups, HaveAStreamEachOnNccl) {
  FakeNccl fake;
  const Shares shares = random_shares(2);
  run_nccl(2, fake, [&](std::shared_ptr<comm::Communicator> group, std::shared_ptr<comm::Communicator>) {
    step_with_two_groups(Zero3(), std::make_shared<PatientCommunicator>(std::move(group)), shares, {});
  });
  std::set<comm::DeviceStream> gathering, reducing;
  for (const FakeCall& call : fake.calls("all_gather", 0)) gathering.insert(call.stream);
  for (const FakeCall& call : fake.calls("send", 0)) reducing.insert(call.stream);
  EXPECT_EQ(gathering.size(), 1U);
  EXPECT_EQ(reducing.size(), 1U);
  EXPECT_NE(gathering, reducing);
  EXPECT_EQ(fake.violations(), "");
}

}  // namespace
}  // namespace apus::parallel
