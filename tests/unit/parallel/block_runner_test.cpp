#include "apus/parallel/block_runner.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "tests/support/tensor_checks.h"

namespace apus::parallel {
namespace {

using apus::testing::expect_close;
using apus::testing::random_leaf;
using apus::testing::random_tensor;

struct Kept {
  Recompute recompute = Recompute::kNone;
  memory::Residency activations = memory::Residency::kDevice;
};

/// A unit y = tanh(x W^T) with a trainable or frozen weight.
class BlockRunnerTest : public ::testing::TestWithParam<Kept> {
 protected:
  at::Tensor call(const at::Tensor& x) {
    ++calls_;
    return x.matmul(weight_.t()).tanh();
  }

  at::Tensor run(const at::Tensor& x) {
    return runner_.run(unit_, x, recompute(), [this](const at::Tensor& input) { return call(input); });
  }

  Recompute recompute() const { return GetParam().recompute; }

  at::Tensor weight_ = random_leaf({3, 3}, 1);
  memory::ParamGroup group_{{{"w", weight_}}, {}};
  memory::GradSink sink_{{&group_}};
  BlockRunner runner_{sink_, nullptr, {.activations = GetParam().activations}};
  Unit unit_{{weight_}};
  int calls_ = 0;
};

TEST_P(BlockRunnerTest, GradientsEqualThoseOfThePlainTape) {
  const at::Tensor x = random_leaf({5, 3}, 2);
  run(x).square().sum().backward();
  sink_.flush();
  const at::Tensor found = group_.begin_reduce().slice(0, 0, 9).view({3, 3});

  const at::Tensor x2 = x.detach().clone().set_requires_grad(true);
  const at::Tensor w2 = weight_.detach().clone().set_requires_grad(true);
  x2.matmul(w2.t()).tanh().square().sum().backward();
  expect_close(x.grad(), x2.grad(), {1e-6, 1e-6}, "input");
  expect_close(found, w2.grad(), {1e-6, 1e-6}, "weight");
  EXPECT_FALSE(weight_.grad().defined()) << "gradients go to the sink, never into .grad";
}

TEST_P(BlockRunnerTest, AnInputThatNeedsNoGradientGetsNone) {
  // A frozen embedding: the first block's backward must run all the same.
  const at::Tensor x = random_tensor({5, 3}, 2);
  const at::Tensor y = run(x);
  EXPECT_TRUE(y.requires_grad());
  y.sum().backward();
  sink_.flush();
  EXPECT_GT(group_.begin_reduce().abs().sum().item<double>(), 0.0);
  EXPECT_FALSE(x.grad().defined());
}

TEST_P(BlockRunnerTest, WithoutGradModeTheUnitIsCalledPlainly) {
  at::NoGradGuard no_grad;
  EXPECT_FALSE(run(random_leaf({2, 3}, 4)).requires_grad());
  EXPECT_EQ(calls_, 1);
}

TEST_P(BlockRunnerTest, AFrozenUnitBelowNothingTrainableKeepsNoTape) {
  const at::Tensor frozen = random_tensor({3, 3}, 5);
  const at::Tensor y = runner_.run(Unit{{frozen}}, random_tensor({2, 3}, 6), recompute(),
                                   [&](const at::Tensor& x) { return x.matmul(frozen); });
  EXPECT_FALSE(y.requires_grad());
}

TEST_P(BlockRunnerTest, RecomputeRunsTheUnitOnceMore) {
  run(random_leaf({2, 3}, 7)).sum().backward();
  EXPECT_EQ(calls_, recompute() == Recompute::kBlock ? 2 : 1);
}

TEST_P(BlockRunnerTest, ChainsOfUnitsPassGradientsThrough) {
  const at::Tensor x = random_leaf({4, 3}, 8);
  run(run(x)).sum().backward();
  sink_.flush();
  const at::Tensor w2 = weight_.detach().clone().set_requires_grad(true);
  const at::Tensor x2 = x.detach().clone().set_requires_grad(true);
  x2.matmul(w2.t()).tanh().matmul(w2.t()).tanh().sum().backward();
  expect_close(group_.begin_reduce().slice(0, 0, 9).view({3, 3}), w2.grad(), {1e-6, 1e-6},
               "a weight used twice");
  expect_close(x.grad(), x2.grad(), {1e-6, 1e-6}, "input");
}

TEST_P(BlockRunnerTest, AParameterThatTheUnitIgnoresGetsZeros) {
  const at::Tensor y =
      runner_.run(unit_, random_leaf({2, 3}, 9), recompute(), [](const at::Tensor& x) { return x * 2; });
  y.sum().backward();
  sink_.flush();
  EXPECT_EQ(group_.begin_reduce().abs().sum().item<double>(), 0.0);
}

TEST_P(BlockRunnerTest, ErrorsOfTheUnitKeepTheirType) {
  const at::Tensor y = runner_.run(unit_, random_leaf({2, 3}, 10), recompute(), [this](const at::Tensor& x) {
    APUS_CHECK(recompute() == Recompute::kNone || ++calls_ < 2, ShapeError, "broken on recompute");
    return call(x);
  });
  if (recompute() == Recompute::kBlock) {
    EXPECT_THROW(y.sum().backward(), ShapeError);
  } else {
    EXPECT_NO_THROW(y.sum().backward());
  }
}

TEST_P(BlockRunnerTest, AGraphThatIsDroppedLeavesNothingBehind) {
  for (int pass = 0; pass < 3; ++pass) {
    run(run(random_leaf({2, 3}, 11)));
    runner_.finish_backward();
    sink_.flush();
  }
  const bool stores = recompute() == Recompute::kBlock && GetParam().activations == memory::Residency::kHost;
  EXPECT_EQ(runner_.host_bytes(), stores ? 2 * 2 * 3 * 4 : 0);
}

INSTANTIATE_TEST_SUITE_P(Recompute, BlockRunnerTest,
                         ::testing::Values(Kept{}, Kept{Recompute::kBlock},
                                           Kept{Recompute::kNone, memory::Residency::kHost},
                                           Kept{Recompute::kBlock, memory::Residency::kHost}));

TEST(BlockRunnerOptions, InputsOfTheLastUnitsStay) {
  const at::Tensor weight = random_leaf({3, 3}, 1);
  memory::ParamGroup group({{"w", weight}}, {});
  memory::GradSink sink({&group});
  BlockRunner runner(sink, nullptr, {.activations = memory::Residency::kHost, .kept_from = 2});
  at::Tensor x = random_leaf({2, 3}, 12);
  for (size_t index = 0; index < 4; ++index) {
    x = runner.run(Unit{{weight}, index}, x, Recompute::kBlock,
                   [&](const at::Tensor& input) { return input.matmul(weight); });
  }
  EXPECT_EQ(runner.host_bytes(), 2 * 2 * 3 * 4);
}

}  // namespace
}  // namespace apus::parallel
