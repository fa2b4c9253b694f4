#include "apus/memory/param_group.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <limits>

#include "apus/base/error.h"

namespace apus::memory {
namespace {

at::Tensor leaf(at::IntArrayRef sizes, double value, at::ScalarType dtype = at::kFloat) {
  return at::full(sizes, value, dtype).set_requires_grad(true);
}

std::vector<GroupParameter> two() {
  return {{"a", leaf({2, 3}, 1.0)}, {"b", leaf({5}, 2.0)}};
}

TEST(ParamGroup, LeavesBecomeViewsOfTheFlatBuffer) {
  auto parameters = two();
  ParamGroup group(parameters, {});
  EXPECT_TRUE(parameters[0].tensor.requires_grad());
  EXPECT_TRUE(parameters[0].tensor.is_leaf());
  group.flat_params().fill_(7.0);
  EXPECT_EQ(parameters[0].tensor.sum().item<double>(), 42.0);
  EXPECT_EQ(parameters[1].tensor.sum().item<double>(), 35.0);
}

TEST(ParamGroup, MastersOfFp32ParametersAreTheParameters) {
  ParamGroup group(two(), {.rank = 1, .world = 2, .shard_optimizer = true});
  EXPECT_EQ(group.masters().numel(), group.layout().shard_elements());
  EXPECT_EQ(group.masters().data_ptr(),
            group.flat_params().slice(0, group.layout().shard_elements()).data_ptr());
}

TEST(ParamGroup, MastersKeepWhatTheComputeDtypeRounds) {
  const double value = 1.0 + 1.0 / 1024;  // not a bfloat16
  std::vector<GroupParameter> parameters{{"a", leaf({4}, value)}};
  ParamGroup group(parameters, {.compute_dtype = at::kBFloat16});
  EXPECT_EQ(parameters[0].tensor.scalar_type(), at::kBFloat16);
  EXPECT_EQ(group.masters()[0].item<double>(), value);
  EXPECT_EQ(parameters[0].tensor[0].item<double>(), 1.0);
  group.masters().fill_(3.0);
  group.publish_masters();
  EXPECT_EQ(parameters[0].tensor[0].item<double>(), 3.0);
}

TEST(ParamGroup, ReplicatedGradientsAccumulateUntilReduced) {
  ParamGroup group(two(), {});
  group.add_grad(0, at::ones({2, 3}));
  group.add_grad(0, at::ones({2, 3}));
  EXPECT_EQ(group.grad_state(), GradState::kPartial);
  EXPECT_EQ(group.begin_reduce().sum().item<double>(), 12.0);
  group.finish_reduce({});
  EXPECT_EQ(group.reduced_grad().sum().item<double>(), 12.0);
  group.reset_grads();
  EXPECT_EQ(group.grad_state(), GradState::kEmpty);
  EXPECT_EQ(group.begin_reduce().sum().item<double>(), 0.0);
}

TEST(ParamGroup, ShardedGradientsAccumulateAfterTheReduction) {
  ParamGroup group(two(), {.rank = 0, .world = 2, .shard_optimizer = true, .shard_gradients = true});
  const int64_t shard = group.layout().shard_elements();
  for (int micro = 0; micro < 3; ++micro) {
    group.add_grad(1, at::ones({5}));
    const at::Tensor full = group.begin_reduce();
    EXPECT_EQ(full.sum().item<double>(), 5.0) << "the full buffer starts from zero in each micro-batch";
    group.finish_reduce(full.slice(0, 0, shard).clone());
  }
  EXPECT_EQ(group.reduced_grad().sum().item<double>(), 15.0);
  EXPECT_EQ(group.owned_grad().numel(), shard);
}

TEST(ParamGroup, AMissingGradientIsZeros) {
  ParamGroup group(two(), {});
  group.add_grad(0, at::Tensor());
  EXPECT_EQ(group.begin_reduce().abs().sum().item<double>(), 0.0);
}

TEST(ParamGroup, GradientsOfAnyFloatDtypeAddInFp32) {
  std::vector<GroupParameter> parameters{{"a", leaf({2}, 1.0, at::kBFloat16)}};
  ParamGroup group(parameters, {});
  group.add_grad(0, at::full({2}, 1.0, at::kBFloat16));
  group.add_grad(0, at::full({2}, 1.0 / 1024, at::kBFloat16));
  EXPECT_EQ(group.begin_reduce()[0].item<double>(), 1.0 + 1.0 / 1024);
}

TEST(ParamGroup, RefusesMixedDtypesFrozenTensorsAndWrongShapes) {
  // pitfalls.md row 12
  EXPECT_THROW(ParamGroup({{"a", leaf({1}, 0)}, {"b", leaf({1}, 0, at::kBFloat16)}}, {}), ShapeError);
  EXPECT_THROW(ParamGroup({{"a", at::ones({1})}}, {}), ShapeError);
  EXPECT_THROW(ParamGroup({}, {}), ShapeError);
  ParamGroup group(two(), {});
  EXPECT_THROW(group.add_grad(0, at::ones({3, 2})), ShapeError);
}

TEST(ParamGroup, ReadingGradientsBeforeTheReductionIsABug) {
  ParamGroup group(two(), {});
  group.add_grad(0, at::ones({2, 3}));
  EXPECT_THROW(group.reduced_grad(), Error);
}

TEST(ParamGroup, RanksAgreeOnValuesBeforeTheyAreTaken) {
  auto parameters = two();
  ParamGroup group(parameters, {.agree_on_values = [](const at::Tensor& values) { values.fill_(9.0); }});
  EXPECT_EQ(parameters[1].tensor[0].item<double>(), 9.0);
}

TEST(ParamGroup, ShardedParametersExistForTheOwnRangeUntilGathered) {
  auto parameters = two();
  ParamGroup group(
      parameters,
      {.rank = 0, .world = 2, .shard_parameters = true, .shard_optimizer = true, .shard_gradients = true});
  EXPECT_EQ(group.own_params().numel(), group.layout().shard_elements());
  EXPECT_EQ(group.masters().data_ptr(), group.own_params().data_ptr()) << "fp32 parameters are their masters";
  EXPECT_ANY_THROW(parameters[0].tensor.clone());
  EXPECT_THROW(group.flat_params(), Error);
  at::Tensor slot = at::full({group.layout().padded_elements()}, 4.0f).view(at::kByte);
  group.buffer()->begin_gather(slot);
  group.buffer()->finish_gather();
  EXPECT_EQ(parameters[1].tensor.sum().item<double>(), 20.0);
}

TEST(ParamGroup, ShardsOfAllRanksAreTheFlatParameters) {
  // pitfalls.md row 13: fewer elements than ranks
  const int world = 4;
  for (int rank = 0; rank < world; ++rank) {
    ParamGroup group(two(), {.rank = rank,
                             .world = world,
                             .shard_parameters = true,
                             .shard_optimizer = true,
                             .shard_gradients = true,
                             .compute_dtype = at::kBFloat16});
    const double wanted = rank == 0 ? 6 * 1.0 + 5 * 2.0 : 0.0;
    EXPECT_EQ(group.own_params().sum().item<double>(), wanted) << rank;
    EXPECT_EQ(group.masters().sum().item<double>(), wanted) << rank;
    EXPECT_EQ(group.dtype(), at::kBFloat16);
  }
}

TEST(ParamGroup, ShardedParametersWithoutShardedStatesAreRefused) {
  EXPECT_THROW(ParamGroup(two(), {.shard_parameters = true}), ConfigError);
  EXPECT_THROW(ParamGroup(two(), {.grad_dtype = at::kHalf}), ConfigError);
}

TEST(ParamGroup, AShardedGradientIsSpreadWhereEveryRankUpdates) {
  ParamGroup group(two(), {.rank = 1, .world = 2, .shard_gradients = true});
  group.add_grad(0, at::ones({2, 3}));
  const at::Tensor full = group.begin_reduce();
  group.finish_reduce(full.slice(0, 1024, 2048).clone());
  EXPECT_THROW(group.reduced_grad(), Error);
  group.spread_grad([&](const at::Tensor& all, const at::Tensor& shard) {
    EXPECT_EQ(shard.numel(), 1024);
    all.fill_(3.0);
  });
  EXPECT_EQ(group.reduced_grad().numel(), 2048);
  group.reset_grads();
  EXPECT_EQ(group.grad_state(), GradState::kEmpty);
}

TEST(ParamGroup, GradientsMayAccumulateInBfloat16) {
  ParamGroup group(two(), {.grad_dtype = at::kBFloat16});
  group.add_grad(1, at::full({5}, 1.0));
  group.add_grad(1, at::full({5}, 1.0 / 1024));
  EXPECT_EQ(group.begin_reduce()[128].item<double>(), 1.0) << "the small addend is below bf16's resolution";
}

TEST(ParamGroup, AKeptBufferForgetsWhatTheStepBeforeLeftInIt) {
  ParamGroup group(two(), {});
  group.add_grad(0, at::full({2, 3}, 5.0));
  group.add_grad(1, at::full({5}, 7.0));
  group.begin_reduce();
  group.finish_reduce({});
  group.reset_grads();
  const GradTarget target = group.grad_target(1);
  EXPECT_TRUE(target.is_fresh);
  target.grad.fill_(1.0);
  EXPECT_FALSE(group.grad_target(1).is_fresh);
  EXPECT_EQ(group.begin_reduce().sum().item<double>(), 5.0) << "a's old gradient is gone";
}

TEST(ParamGroup, WhatNobodyWroteIsZeroGapsIncluded) {
  // Poison: the buffer's memory comes back from one that held NaN.
  const int64_t elements = ParamGroup(two(), {}).layout().padded_elements();
  { const at::Tensor poison = at::full({elements}, std::numeric_limits<float>::quiet_NaN()); }
  ParamGroup group(two(), {});
  group.grad_target(1).grad.fill_(2.0);
  EXPECT_EQ(group.begin_reduce().sum().item<double>(), 10.0);
}

TEST(ParamGroup, Bfloat16StatesHaveNoMastersBesideTheParameters) {
  const ParamGroupOptions options{.compute_dtype = at::kBFloat16, .states = OptimizerStates::kBf16};
  ParamGroup group(two(), options);
  EXPECT_FALSE(group.has_masters());
  EXPECT_EQ(group.masters().data_ptr(), group.own_params().data_ptr());
  EXPECT_EQ(group.exp_avg().scalar_type(), at::kBFloat16);
  EXPECT_EQ(group.exp_avg_sq().scalar_type(), at::kBFloat16);
  group.publish_masters();
  EXPECT_EQ(group.masters().sum().item<double>(), 16.0);
  EXPECT_THROW(ParamGroup(two(), {.states = OptimizerStates::kBf16}), ConfigError);
}

TEST(ParamGroup, ADeviceMayBeNamed) {
  auto parameters = two();
  ParamGroup group(parameters, {.device = at::Device(at::kCPU)});
  EXPECT_TRUE(group.own_params().is_cpu());
  EXPECT_EQ(parameters[0].tensor.sum().item<double>(), 6.0);
}

}  // namespace
}  // namespace apus::memory
