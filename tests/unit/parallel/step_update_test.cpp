#include "apus/parallel/step_update.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cmath>

#include "apus/comm/fake_communicator.h"
#include "tests/support/tensor_checks.h"

namespace apus::parallel {
namespace {

/// A matrix and a bias on one rank, with gradients 1 and 2.
class StepUpdateTest : public ::testing::Test {
 protected:
  std::unique_ptr<StepUpdate> make(const ShardedModelOptions& options) {
    group_ = std::make_unique<memory::ParamGroup>(
        std::vector<memory::GroupParameter>{{"w", leaf({2, 3}), 0}, {"b.bias", leaf({4}), 0}},
        memory::ParamGroupOptions{.residency = options.policy.residency});
    group_->add_grad(0, at::full({2, 3}, 1.0));
    group_->add_grad(1, at::full({4}, 2.0));
    group_->begin_reduce();
    group_->finish_reduce({});
    return std::make_unique<StepUpdate>(std::vector<memory::ParamGroup*>{group_.get()},
                                        DataParallel::one_axis(*dp_), options);
  }
  static at::Tensor leaf(at::IntArrayRef sizes) { return at::ones(sizes).set_requires_grad(true); }
  static double norm(StepUpdate& update) { return update.measure({}).norm.item<double>(); }
  static StepScalars clipped(double factor) { return {.clip_factor = at::full({1}, factor, at::kFloat)}; }
  double value(int64_t index) const {
    return group_->parameters()[index].tensor.detach().view({-1})[0].item<double>();
  }

  std::unique_ptr<comm::Communicator> dp_ = comm::make_fake_communicator({});
  std::unique_ptr<memory::ParamGroup> group_;
};

TEST_F(StepUpdateTest, TheNormIsTheSameInOrderAndBySum) {
  const double wanted = std::sqrt(6 * 1.0 + 4 * 4.0);
  EXPECT_DOUBLE_EQ(norm(*make({})), wanted);
  EXPECT_DOUBLE_EQ(norm(*make({.deterministic = true})), wanted);
}

TEST_F(StepUpdateTest, SettingsOfAParameterReachNormRateAndDecay) {
  // pitfalls.md row 20: norm weights come from placement, here 0 for a parameter that another rank counts
  ShardedModelOptions options;
  options.settings = [](const nn::NamedParameter& parameter) {
    return parameter.name == "w" ? ParameterSettings{.lr_scale = 0.5, .norm_weight = 0.0}
                                 : ParameterSettings{.decay_scale = 1.0};
  };
  const auto update = make(options);
  EXPECT_DOUBLE_EQ(norm(*update), 4.0);
  update->apply({.lr = 0.1, .epsilon = 0.0, .weight_decay = 0.0}, clipped(1.0), 1);
  EXPECT_NEAR(value(0), 1.0 - 0.05, 1e-6);
  EXPECT_NEAR(value(1), 1.0 - 0.1, 1e-6);
}

TEST_F(StepUpdateTest, DecayLeavesBiasesAloneUnlessToldOtherwise) {
  make({})->apply({.lr = 0.1, .weight_decay = 1.0}, clipped(0.0), 1);
  EXPECT_NEAR(value(0), 0.9, 1e-6);
  EXPECT_NEAR(value(1), 1.0, 1e-6);
}

TEST_F(StepUpdateTest, TheClipFactorReachesTheMoments) {
  // pitfalls.md row 23
  make({})->apply({.lr = 0.0, .beta1 = 0.0, .weight_decay = 0.0}, clipped(0.25), 1);
  EXPECT_EQ(group_->exp_avg()[0].item<double>(), 0.25);
}

TEST_F(StepUpdateTest, MeasuringGivesClipFactorAndFlag) {
  const double norm = std::sqrt(22.0);
  const auto update = make({});
  const StepScalars free = update->measure({.max_grad_norm = 0.0});
  EXPECT_EQ(free.clip_factor.item<float>(), 1.0f);
  EXPECT_EQ(free.found_inf.item<float>(), 0.0f);
  const StepScalars clips = update->measure({.max_grad_norm = 0.5});
  EXPECT_EQ(clips.clip_factor.item<float>(), static_cast<float>(0.5 / (norm + 1e-6)));
}

TEST_F(StepUpdateTest, WhatMultipliedTheLossesIsDividedOutOfNormAndFactor) {
  const double norm = std::sqrt(22.0) / 65536.0;
  const auto update = make({});
  const StepScalars free = update->measure({.max_grad_norm = 1.0, .loss_scale = 65536.0});
  EXPECT_EQ(free.norm.item<double>(), norm);
  EXPECT_EQ(free.clip_factor.item<float>(), 1.0f / 65536.0f) << "the norm without the scale is below 1";
  const StepScalars clips = update->measure({.max_grad_norm = 1e-5, .loss_scale = 65536.0});
  EXPECT_EQ(clips.clip_factor.item<float>(), static_cast<float>(1e-5 / (norm + 1e-6) / 65536.0));
}

TEST_F(StepUpdateTest, AFlagOrANormThatIsNotFiniteSkipsTheStep) {
  const auto update = make({});
  EXPECT_EQ(update->measure({.found_inf = at::full({1}, 1.0)}).found_inf.item<float>(), 1.0f);
  EXPECT_EQ(update->measure({.found_inf = at::full({}, 0, at::kLong)}).found_inf.item<float>(), 0.0f);
  EXPECT_EQ(update->measure({.found_inf = at::full({1}, std::nan(""))}).found_inf.item<float>(), 1.0f);
  group_->reduced_grad().fill_(std::nan(""));
  EXPECT_EQ(update->measure({}).found_inf.item<float>(), 1.0f);
}

/// The optimizer on the host.
ShardedModelOptions on_host() {
  ShardedModelOptions options{.policy = Ddp()};
  options.policy.residency.optimizer = memory::Residency::kHost;
  return options;
}

TEST_F(StepUpdateTest, OnTheHostAGroupIsUpdatedWhenItHasBeenWaitedFor) {
  const auto update = make(on_host());
  ASSERT_NE(update->host(), nullptr);
  EXPECT_DOUBLE_EQ(norm(*update), std::sqrt(22.0));
  update->step_reduced(*group_);
  update->apply({.lr = 0.1, .epsilon = 0.0, .weight_decay = 0.0}, clipped(1.0), 1);
  update->start_gathers();
  update->end_step();
  update->wait_gather(0);
  EXPECT_NEAR(value(0), 1.0 - 0.1, 1e-6);
  EXPECT_FALSE(update->counts_on_device());
}

TEST_F(StepUpdateTest, NothingWorksOnTheHostUnlessStatesLieThere) {
  EXPECT_EQ(make({})->host(), nullptr);
}

TEST_F(StepUpdateTest, SkippedStepsWriteNothing) {
  StepScalars scalars = clipped(1.0);
  scalars.found_inf = at::ones({1}, at::kFloat);
  make({})->apply({.lr = 0.1}, scalars, 1);
  EXPECT_EQ(value(0), 1.0);
  EXPECT_EQ(group_->exp_avg().abs().sum().item<double>(), 0.0);
}

}  // namespace
}  // namespace apus::parallel
