// Groups whose states lie on the host.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/memory/frozen_group.h"
#include "apus/memory/param_group.h"
#include "tests/support/tensor_checks.h"

namespace apus::memory {
namespace {

constexpr Residency kHost = Residency::kHost;

std::vector<GroupParameter> two(double value = 1.0) {
  return {{"a", at::full({2, 3}, value).set_requires_grad(true)},
          {"b", at::full({5}, 2.0).set_requires_grad(true)}};
}

/// Everything cut over two ranks.
ParamGroupOptions cut(const StateResidency& residency) {
  return {.rank = 0,
          .world = 2,
          .shard_parameters = true,
          .shard_optimizer = true,
          .shard_gradients = true,
          .residency = residency};
}

TEST(HostResidency, MastersOfFp32ParametersAreBuffersOfTheirOwnOnTheOtherSide) {
  const auto parameters = two();
  ParamGroup group(parameters, {.residency = {.optimizer = kHost}});
  EXPECT_TRUE(group.has_masters());
  EXPECT_NE(group.masters().data_ptr(), group.own_params().data_ptr());
  EXPECT_EQ(group.masters().sum().item<double>(), 16.0);
  group.masters().fill_(4.0);
  EXPECT_EQ(parameters[0].tensor[0][0].item<double>(), 1.0) << "not published yet";
  group.publish_masters();
  EXPECT_EQ(parameters[0].tensor[0][0].item<double>(), 4.0);
}

TEST(HostResidency, MastersAndParametersOnOneSideAreOneBuffer) {
  const ParamGroup all(two(), cut({.optimizer = kHost, .parameters = kHost}));
  EXPECT_FALSE(all.has_masters());
  EXPECT_EQ(all.masters().data_ptr(), all.own_params().data_ptr());
  ParamGroupOptions narrow = cut({.optimizer = kHost, .parameters = kHost});
  narrow.compute_dtype = at::kBFloat16;
  narrow.states = OptimizerStates::kBf16;
  const ParamGroup bf16(two(), narrow);
  EXPECT_EQ(bf16.masters().data_ptr(), bf16.own_params().data_ptr());
  EXPECT_EQ(bf16.masters().scalar_type(), at::kBFloat16);
}

TEST(HostResidency, Bfloat16StatesKeepTheirMasterOnTheHost) {
  const ParamGroupOptions options{
      .compute_dtype = at::kBFloat16, .states = OptimizerStates::kBf16, .residency = {.optimizer = kHost}};
  const ParamGroup group(two(), options);
  EXPECT_TRUE(group.has_masters());
  EXPECT_EQ(group.masters().scalar_type(), at::kBFloat16);
  EXPECT_NE(group.masters().data_ptr(), group.own_params().data_ptr());
  EXPECT_EQ(group.masters().sum().item<double>(), 16.0);
}

TEST(HostResidency, ParametersAloneMayLieOnTheHost) {
  ParamGroup group(two(), cut({.parameters = kHost}));
  EXPECT_TRUE(group.has_masters()) << "the optimizer needs them on the device";
  EXPECT_EQ(group.buffer()->residency(), kHost);
  group.masters().fill_(3.0);
  group.publish_masters();
  EXPECT_EQ(group.own_params()[0].item<double>(), 3.0);
}

TEST(HostResidency, WholeParametersStayOnTheDevice) {
  const ParamGroup group(two(), {.residency = {.parameters = kHost}});
  EXPECT_EQ(group.parameter_residency(), Residency::kDevice);
  EXPECT_FALSE(group.has_masters());
}

TEST(HostResidency, EveryMicroBatchIsInTheAccumulator) {
  // pitfalls.md row 6
  ParamGroup group(two(), cut({.optimizer = kHost, .gradients = kHost}));
  const at::Tensor accumulator = group.host_accumulator();
  for (const double first : {1.0, 7.0}) {
    for (int micro = 0; micro < 3; ++micro) {
      group.add_grad(0, at::full({2, 3}, first + micro));
      const at::Tensor full = group.begin_reduce();
      group.finish_reduce(full.slice(0, 0, 1024).clone());
    }
    EXPECT_EQ(group.owned_grad().sum().item<double>(), 6 * (3 * first + 3)) << "nothing of the step before";
    EXPECT_EQ(group.owned_grad().data_ptr(), accumulator.data_ptr()) << "one buffer for all steps";
    group.reset_grads();
  }
}

TEST(HostResidency, AnAdderTakesWhatIsReducedAndIsWaitedFor) {
  std::vector<SumStart> starts;
  int waits = 0;
  ParamGroupOptions options = cut({.optimizer = kHost, .gradients = kHost});
  options.host_adder = {.add =
                            [&](const at::Tensor& sum, const at::Tensor& addend, SumStart start) {
                              EXPECT_EQ(sum.numel(), addend.numel());
                              starts.push_back(start);
                            },
                        .wait = [&] { ++waits; }};
  ParamGroup group(two(), options);
  for (int micro = 0; micro < 2; ++micro) {
    const at::Tensor full = group.begin_reduce();
    group.finish_reduce(full.slice(0, 0, 1024).clone());
  }
  EXPECT_EQ(starts, (std::vector{SumStart::kOverwrite, SumStart::kAdd}));
  EXPECT_EQ(waits, 0);
  group.reduced_grad();
  EXPECT_EQ(waits, 1);
}

TEST(HostResidency, GradientsThatAccumulateInBfloat16RoundAsOnTheDevice) {
  const auto sum = [](const StateResidency& residency) {
    ParamGroupOptions options = cut(residency);
    options.grad_dtype = at::kBFloat16;
    ParamGroup group(two(), options);
    for (int micro = 0; micro < 3; ++micro) {
      group.begin_reduce();
      group.finish_reduce(testing::random_tensor({1024}, 5 + micro));
    }
    return group.owned_grad().clone();
  };
  EXPECT_TRUE(sum({.optimizer = kHost, .gradients = kHost}).equal(sum({})));
}

TEST(HostResidency, WholeGradientsOnTheHostAreRefused) {
  EXPECT_THROW(ParamGroup(two(), {.residency = {.gradients = kHost}}), ConfigError);
}

TEST(HostResidency, FrozenBytesComeBackFromTheHost) {
  const auto leaf = [] { return std::vector<GroupParameter>{{"w", testing::random_tensor({33, 7}, 1)}}; };
  FrozenGroup group(leaf(), {.compute_dtype = at::kBFloat16, .residency = kHost});
  EXPECT_EQ(group.buffer().residency(), kHost);
  EXPECT_EQ(group.buffer().device(), at::Device(at::kCPU));
  group.buffer().begin_gather(group.buffer().shard().clone());
  group.buffer().finish_gather();
  EXPECT_TRUE(group.parameters()[0].tensor.equal(leaf()[0].tensor.to(at::kBFloat16)));
}

}  // namespace
}  // namespace apus::memory
