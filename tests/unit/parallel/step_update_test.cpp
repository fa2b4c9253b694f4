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
        memory::ParamGroupOptions{});
    group_->add_grad(0, at::full({2, 3}, 1.0));
    group_->add_grad(1, at::full({4}, 2.0));
    group_->begin_reduce();
    group_->finish_reduce({});
    return std::make_unique<StepUpdate>(std::vector<memory::ParamGroup*>{group_.get()},
                                        DataParallel::one_axis(*dp_), options);
  }
  static at::Tensor leaf(at::IntArrayRef sizes) { return at::ones(sizes).set_requires_grad(true); }
  double value(int64_t index) const {
    return group_->parameters()[index].tensor.detach().view({-1})[0].item<double>();
  }

  std::unique_ptr<comm::Communicator> dp_ = comm::make_fake_communicator({});
  std::unique_ptr<memory::ParamGroup> group_;
};

TEST_F(StepUpdateTest, TheNormIsTheSameInOrderAndBySum) {
  const double wanted = std::sqrt(6 * 1.0 + 4 * 4.0);
  EXPECT_DOUBLE_EQ(make({})->norm(), wanted);
  EXPECT_DOUBLE_EQ(make({.deterministic = true})->norm(), wanted);
}

TEST_F(StepUpdateTest, SettingsOfAParameterReachNormRateAndDecay) {
  // pitfalls.md row 20: norm weights come from placement, here 0 for a parameter that another rank counts
  ShardedModelOptions options;
  options.settings = [](const nn::NamedParameter& parameter) {
    return parameter.name == "w" ? ParameterSettings{.lr_scale = 0.5, .norm_weight = 0.0}
                                 : ParameterSettings{.decay_scale = 1.0};
  };
  const auto update = make(options);
  EXPECT_DOUBLE_EQ(update->norm(), 4.0);
  update->apply({.lr = 0.1, .epsilon = 0.0, .weight_decay = 0.0}, 1.0, 1);
  EXPECT_NEAR(value(0), 1.0 - 0.05, 1e-6);
  EXPECT_NEAR(value(1), 1.0 - 0.1, 1e-6);
}

TEST_F(StepUpdateTest, DecayLeavesBiasesAloneUnlessToldOtherwise) {
  make({})->apply({.lr = 0.1, .weight_decay = 1.0}, 0.0, 1);
  EXPECT_NEAR(value(0), 0.9, 1e-6);
  EXPECT_NEAR(value(1), 1.0, 1e-6);
}

TEST_F(StepUpdateTest, TheClipFactorReachesTheMoments) {
  // pitfalls.md row 23
  make({})->apply({.lr = 0.0, .beta1 = 0.0, .weight_decay = 0.0}, 0.25, 1);
  EXPECT_EQ(group_->exp_avg()[0].item<double>(), 0.25);
}

}  // namespace
}  // namespace apus::parallel
