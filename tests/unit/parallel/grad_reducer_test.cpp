#include "apus/parallel/grad_reducer.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/comm/decorators.h"
#include "apus/comm/fake_communicator.h"

namespace apus::parallel {
namespace {

using comm::OpKind;

/// One group of 5 elements on rank 0 of 2, whose peer sends zeros.
class GradReducerTest : public ::testing::Test {
 protected:
  void build(const ShardPolicy& policy, const GradReducerOptions& options = {}) {
    group_ = std::make_unique<memory::ParamGroup>(
        std::vector<memory::GroupParameter>{{"w", weight_}},
        memory::ParamGroupOptions{.rank = 0,
                                  .world = world_,
                                  .shard_optimizer = policy.opt_shard,
                                  .shard_gradients = policy.grad_shard || options.deterministic});
    reducer_ = std::make_unique<GradReducer>(std::vector<memory::ParamGroup*>{group_.get()}, policy,
                                             DataParallel::one_axis(*recorded_), options);
  }
  void micro_batch(double value, MicroBatchPlace place) {
    reducer_->begin_micro_batch(place);
    reducer_->sink().expect(weight_);
    reducer_->sink().add(weight_, at::full({5}, value));
    reducer_->finish_micro_batch();
  }
  int64_t count(OpKind kind) const { return log_->count(kind); }

  int world_ = 2;
  std::shared_ptr<comm::CommLog> log_ = comm::CommLog::create();
  std::unique_ptr<comm::Communicator> recorded_ =
      comm::make_recorded_communicator(comm::make_fake_communicator({.size = 2}), log_);
  at::Tensor weight_ = at::ones({5}).set_requires_grad(true);
  std::unique_ptr<memory::ParamGroup> group_;
  std::unique_ptr<GradReducer> reducer_;
};

TEST_F(GradReducerTest, DdpAndZero1SendOnceAStep) {
  // pitfalls.md row 5: the last micro-batch is part of what is reduced
  for (const ShardPolicy& policy : {ShardPolicy(Ddp()), ShardPolicy(Zero1())}) {
    log_->clear();
    build(policy);
    micro_batch(1.0, MicroBatchPlace::kNotLast);
    EXPECT_TRUE(log_->records().empty());
    micro_batch(2.0, MicroBatchPlace::kLast);
    EXPECT_EQ(count(policy.opt_shard ? OpKind::kReduceScatter : OpKind::kAllReduce), 1);
    EXPECT_EQ(log_->records().size(), 1U);
    EXPECT_EQ(group_->reduced_grad().sum().item<double>(), 15.0) << policy.name;
  }
}

TEST_F(GradReducerTest, TellsOnceAStepThatAGroupIsReduced) {
  for (const bool deterministic : {false, true}) {
    for (const ShardPolicy& policy : {ShardPolicy(Ddp()), ShardPolicy(Zero2())}) {
      int told = 0;
      build(policy, {.deterministic = deterministic, .on_step_reduced = [&](const memory::ParamGroup& group) {
                       ++told;
                       EXPECT_EQ(group.reduced_grad().sum().item<double>(), 15.0) << policy.name;
                     }});
      micro_batch(1.0, MicroBatchPlace::kNotLast);
      EXPECT_EQ(told, 0);
      micro_batch(2.0, MicroBatchPlace::kLast);
      EXPECT_EQ(told, 1) << policy.name;
    }
  }
}

TEST_F(GradReducerTest, Zero2SendsEveryMicroBatchOrOnceIfToldTo) {
  build(Zero2());
  micro_batch(1.0, MicroBatchPlace::kNotLast);
  micro_batch(2.0, MicroBatchPlace::kLast);
  EXPECT_EQ(count(OpKind::kReduceScatter), 2);
  EXPECT_EQ(group_->reduced_grad().sum().item<double>(), 15.0);

  log_->clear();
  ShardPolicy once = Zero2();
  once.reduce = ReduceCadence::kStep;
  build(once);
  micro_batch(1.0, MicroBatchPlace::kNotLast);
  micro_batch(2.0, MicroBatchPlace::kLast);
  EXPECT_EQ(count(OpKind::kReduceScatter), 1);
  EXPECT_EQ(group_->reduced_grad().sum().item<double>(), 15.0);
}

TEST_F(GradReducerTest, DeterministicModeExchangesPartsEveryMicroBatchUnderAnyPolicy) {
  for (const ShardPolicy& policy : {ShardPolicy(Ddp()), ShardPolicy(Zero1()), ShardPolicy(Zero2())}) {
    log_->clear();
    build(policy, {.deterministic = true});
    micro_batch(1.0, MicroBatchPlace::kNotLast);
    micro_batch(2.0, MicroBatchPlace::kLast);
    EXPECT_EQ(count(OpKind::kAllToAll), 2) << policy.name;
    EXPECT_EQ(count(OpKind::kAllGather), policy.opt_shard ? 0 : 1) << policy.name;
    EXPECT_EQ(count(OpKind::kAllReduce) + count(OpKind::kReduceScatter), 0) << policy.name;
  }
}

TEST_F(GradReducerTest, WhatIsStillRunningIsLeftToTheNextForward) {
  build(Zero2());
  micro_batch(1.0, MicroBatchPlace::kNotLast);
  EXPECT_EQ(group_->grad_state(), memory::GradState::kReducing);
  micro_batch(2.0, MicroBatchPlace::kLast);
  EXPECT_EQ(group_->grad_state(), memory::GradState::kSharded) << "a step ends with all of it";
  EXPECT_EQ(group_->reduced_grad().sum().item<double>(), 15.0);
}

TEST_F(GradReducerTest, SumsStayFp32WhateverTravels) {
  // pitfalls.md row 37: a bf16 gradient is added up in fp32
  build(Zero2());
  micro_batch(1.0, MicroBatchPlace::kNotLast);
  micro_batch(1.0 / 1024, MicroBatchPlace::kLast);
  EXPECT_EQ(group_->reduced_grad()[0].item<double>(), 1.0 + 1.0 / 1024);
}

TEST_F(GradReducerTest, ReduceDtypeHalvesTheBytesAndRoundsWhatTravels) {
  build(Zero2(), {.reduce_dtype = at::kBFloat16});
  micro_batch(1.0 + 1.0 / 1024, MicroBatchPlace::kLast);
  EXPECT_EQ(log_->bytes(OpKind::kAllToAll), 2 * group_->layout().padded_elements());
  EXPECT_EQ(log_->records().size(), 1U);
  EXPECT_EQ(group_->reduced_grad()[0].item<double>(), 1.0);
  EXPECT_EQ(group_->reduced_grad().scalar_type(), at::kFloat);
}

TEST_F(GradReducerTest, SumsOfRoundedGradientsAreNotLeftToTheCommunicator) {
  for (const ShardPolicy& policy : {ShardPolicy(Ddp()), ShardPolicy(Zero1()), ShardPolicy(Zero2())}) {
    log_->clear();
    build(policy, {.reduce_dtype = at::kBFloat16});
    micro_batch(3.0, MicroBatchPlace::kLast);
    EXPECT_EQ(count(OpKind::kAllToAll), 1) << policy.name;
    EXPECT_EQ(count(OpKind::kAllGather), policy.opt_shard ? 0 : 1) << policy.name;
    EXPECT_EQ(count(OpKind::kAllReduce) + count(OpKind::kReduceScatter), 0) << policy.name;
    EXPECT_EQ(group_->owned_grad().sum().item<double>(), 15.0) << policy.name;
  }
}

TEST_F(GradReducerTest, AParameterWithoutAGradientIsZerosInItsPlace) {
  // pitfalls.md row 24: the order of collectives does not depend on who has gradients
  build(Zero2());
  reducer_->begin_micro_batch(MicroBatchPlace::kLast);
  reducer_->finish_micro_batch();
  EXPECT_EQ(count(OpKind::kReduceScatter), 1);
  EXPECT_EQ(group_->reduced_grad().abs().sum().item<double>(), 0.0);
}

TEST_F(GradReducerTest, OneRankSendsAndCopiesNothing) {
  world_ = 1;
  recorded_ = comm::make_recorded_communicator(comm::make_fake_communicator({}), log_);
  for (const ShardPolicy& policy : {ShardPolicy(Ddp()), ShardPolicy(Zero2())}) {
    build(policy);
    micro_batch(1.0, MicroBatchPlace::kNotLast);
    micro_batch(2.0, MicroBatchPlace::kLast);
    EXPECT_TRUE(log_->records().empty()) << policy.name;
    EXPECT_EQ(group_->reduced_grad().sum().item<double>(), 15.0) << policy.name;
  }
  for (const ShardPolicy& policy : {ShardPolicy(Ddp()), ShardPolicy(Zero1()), ShardPolicy(Zero2())}) {
    build(policy, {.reduce_dtype = at::kBFloat16});
    micro_batch(1.0 + 1.0 / 1024, MicroBatchPlace::kLast);
    EXPECT_TRUE(log_->records().empty()) << policy.name;
    EXPECT_EQ(group_->reduced_grad()[0].item<double>(), 1.0) << "rounded as if it had travelled";
  }
}

TEST_F(GradReducerTest, AnOperationMayWriteWhileTheMicroBatchBeforeIsReduced) {
  build(Zero2());
  micro_batch(1.0, MicroBatchPlace::kNotLast);
  ASSERT_EQ(group_->grad_state(), memory::GradState::kReducing);
  // In the next forward, before begin_micro_batch: the head writes its gradient there.
  reducer_->sink().expect(weight_);
  reducer_->sink().target(weight_)->grad.fill_(2.0);
  reducer_->begin_micro_batch(MicroBatchPlace::kLast);
  reducer_->sink().add(weight_, {});
  reducer_->finish_micro_batch();
  EXPECT_EQ(group_->reduced_grad().sum().item<double>(), 15.0);
}

TEST_F(GradReducerTest, OtherDtypesAreRefused) {
  EXPECT_THROW(build(Zero2(), {.reduce_dtype = at::kHalf}), ConfigError);
}

}  // namespace
}  // namespace apus::parallel
