#include "apus/optim/adamw.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/base/philox.h"

namespace apus::optim {
namespace {

constexpr int64_t kCount = 3001;  // several kernel blocks and an odd remainder

at::Tensor random_N(std::string_view name, double scale, int64_t count = kCount) {
  const PhiloxSequence random(uint64_t{7}, name);
  const at::Tensor values = at::empty({count}, at::kFloat);
  for (int64_t i = 0; i < count; ++i)
    values.mutable_data_ptr<float>()[i] = static_cast<float>(scale * random.normal(static_cast<uint64_t>(i)));
  return values;
}

struct Fixture {
  AdamwState state{random_N("master", 0.1), at::zeros({kCount}, at::kFloat), at::zeros({kCount}, at::kFloat)};
  std::vector<Segment> whole{{.begin = 0, .end = kCount, .lr_scale = 1.0, .weight_decay = 0.1}};
  AdamwOptions options{.lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .step = 1};

  void run(int64_t steps, const at::Tensor& copy = {}) {
    for (options.step = 1; options.step <= steps; ++options.step)
      adamw_step(state, random_N("grad" + std::to_string(options.step), 0.5), copy, whole, options);
  }
};

/// The textbook algorithm on one element in double.
struct Reference {
  double p, m = 0, v = 0;

  void step(double g, const AdamwOptions& o, const Segment& s) {
    const double lr = o.lr * s.lr_scale, t = static_cast<double>(o.step);
    p *= 1 - lr * s.weight_decay;
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(o.beta1, t)), v_hat = v / (1 - std::pow(o.beta2, t));
    p -= lr * m_hat / (std::sqrt(v_hat) + o.epsilon);
  }
};

float at_index(const at::Tensor& tensor, int64_t i) {
  return tensor.const_data_ptr<float>()[i];
}

TEST(Adamw, FollowsTheTextbookInDouble) {
  Fixture f;
  const at::Tensor start = f.state.master_N.clone();
  f.run(20);
  for (int64_t i = 0; i < kCount; ++i) {
    Reference reference{at_index(start, i)};
    AdamwOptions options = f.options;
    for (options.step = 1; options.step <= 20; ++options.step) {
      const PhiloxSequence random(uint64_t{7}, "grad" + std::to_string(options.step));
      reference.step(static_cast<float>(0.5 * random.normal(static_cast<uint64_t>(i))), options, f.whole[0]);
    }
    // 20 steps of 3e-3 move an element by up to 0.06: allow fp32 rounding of that and of the element.
    ASSERT_NEAR(at_index(f.state.master_N, i), reference.p, 2e-7) << i;
    ASSERT_NEAR(at_index(f.state.exp_avg_N, i), reference.m, 1e-6) << i;
    ASSERT_NEAR(at_index(f.state.exp_avg_sq_N, i), reference.v, 1e-6) << i;
  }
}

TEST(Adamw, AgreesWithTorchsFusedAdamwToTheLastPlaces) {
  Fixture ours, theirs;
  const at::Tensor step = at::zeros({}, at::kFloat);
  ours.run(5);
  for (int64_t i = 1; i <= 5; ++i) {
    step.fill_(static_cast<double>(i));
    at::_fused_adamw_({theirs.state.master_N}, {random_N("grad" + std::to_string(i), 0.5)},
                      {theirs.state.exp_avg_N}, {theirs.state.exp_avg_sq_N}, {}, {step}, 3e-3, 0.9, 0.95, 0.1,
                      1e-8,
                      /*amsgrad=*/false, /*maximize=*/false);
  }
  for (int64_t i = 0; i < kCount; ++i) {
    const float theirs_i = at_index(theirs.state.master_N, i);
    ASSERT_NEAR(at_index(ours.state.master_N, i), theirs_i, 3e-9 + 3e-7 * std::abs(theirs_i)) << i;
  }
}

TEST(Adamw, GivesTheSameBitsWhereverSegmentsAreCut) {
  Fixture one, cut;
  cut.whole.clear();
  for (int64_t begin = 0, length = 1; begin < kCount; begin += length, length = length % 37 + 3)
    cut.whole.push_back({begin, std::min(begin + length, kCount), 1.0, 0.1});
  one.run(3);
  cut.run(3);
  EXPECT_TRUE(at::equal(one.state.master_N, cut.state.master_N));
  EXPECT_TRUE(at::equal(one.state.exp_avg_N, cut.state.exp_avg_N));
  EXPECT_TRUE(at::equal(one.state.exp_avg_sq_N, cut.state.exp_avg_sq_N));
}

TEST(Adamw, SegmentsHaveTheirOwnRateAndDecay) {
  Fixture f;
  f.whole = {{.begin = 0, .end = 10, .lr_scale = 2.0, .weight_decay = 0.5},
             {.begin = 10, .end = 20, .lr_scale = 0.0, .weight_decay = 0.5}};
  const at::Tensor start = f.state.master_N.clone();
  const at::Tensor grad_N = random_N("grad1", 0.5);
  adamw_step(f.state, grad_N, {}, f.whole, f.options);
  for (int64_t i = 0; i < 10; ++i) {
    Reference reference{at_index(start, i)};
    reference.step(at_index(grad_N, i), f.options, f.whole[0]);
    EXPECT_NEAR(at_index(f.state.master_N, i), reference.p, 6e-8);  // two ulp
  }
  for (int64_t i = 10; i < 20; ++i) {
    EXPECT_EQ(at_index(f.state.master_N, i), at_index(start, i)) << "a rate of 0 moves nothing";
    EXPECT_NE(at_index(f.state.exp_avg_N, i), 0) << "but the moments go on";
  }
}

TEST(Adamw, LeavesPaddingAloneWhateverItHolds) {
  Fixture f;
  f.whole = {{.begin = 5, .end = 600, .lr_scale = 1.0, .weight_decay = 0.1}};
  const at::Tensor start = f.state.master_N.clone();
  const at::Tensor grad_N = at::full({kCount}, std::numeric_limits<float>::quiet_NaN(), at::kFloat);
  grad_N.slice(0, 5, 600).fill_(0.25);
  const at::Tensor copy_N = at::full({kCount}, 9, at::kBFloat16);
  adamw_step(f.state, grad_N, copy_N, f.whole, f.options);
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 5}, {600, kCount}}) {
    EXPECT_TRUE(at::equal(f.state.master_N.slice(0, begin, end), start.slice(0, begin, end)));
    EXPECT_EQ(f.state.exp_avg_N.slice(0, begin, end).abs().sum().item<double>(), 0);
    EXPECT_EQ(copy_N.slice(0, begin, end).ne(9).sum().item<int64_t>(), 0);
  }
  EXPECT_EQ(f.state.master_N.isnan().sum().item<int64_t>(), 0);
  EXPECT_EQ(f.state.master_N.slice(0, 5, 600).eq(start.slice(0, 5, 600)).sum().item<int64_t>(), 0);
}

TEST(Adamw, WritesTheComputeCopyInTheSamePass) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    Fixture f;
    const at::Tensor copy_N = at::zeros({kCount}, dtype);
    f.run(2, copy_N);
    EXPECT_TRUE(at::equal(copy_N, f.state.master_N.to(dtype))) << dtype;
  }
}

TEST(Adamw, TheClipFactorScalesTheGradient) {
  Fixture clipped, scaled;
  const at::Tensor grad_N = random_N("grad", 4.0);
  adamw_step(clipped.state, grad_N, {}, clipped.whole, clipped.options,
             {.clip_factor = at::full({}, 0.25, at::kFloat), .found_inf = at::zeros({1}, at::kFloat)});
  adamw_step(scaled.state, grad_N.mul(0.25), {}, scaled.whole, scaled.options);
  EXPECT_TRUE(at::equal(clipped.state.master_N, scaled.state.master_N));
  EXPECT_TRUE(at::equal(clipped.state.exp_avg_sq_N, scaled.state.exp_avg_sq_N));
}

TEST(Adamw, AnOverflowLeavesEverythingAsItWas) {
  Fixture f, untouched;
  const at::Tensor copy_N = at::full({kCount}, 9, at::kFloat);
  adamw_step(f.state, random_N("grad", 1), copy_N, f.whole, f.options,
             {.clip_factor = {}, .found_inf = at::full({1}, 1, at::kFloat)});
  EXPECT_TRUE(at::equal(f.state.master_N, untouched.state.master_N));
  EXPECT_TRUE(at::equal(f.state.exp_avg_N, untouched.state.exp_avg_N));
  EXPECT_EQ(copy_N.ne(9).sum().item<int64_t>(), 0);
}

TEST(Adamw, ARateOfZeroChangesOnlyTheMoments) {
  Fixture f;
  const at::Tensor start = f.state.master_N.clone();
  f.options.lr = 0;
  adamw_step(f.state, random_N("grad", 1), {}, f.whole, f.options);
  EXPECT_TRUE(at::equal(f.state.master_N, start));
  EXPECT_EQ(f.state.exp_avg_N.eq(0).sum().item<int64_t>(), 0);
}

TEST(Adamw, RefusesTensorsThatDoNotFitAndWritesNothing) {
  Fixture f;
  const at::Tensor start = f.state.master_N.clone(), grad_N = random_N("grad", 1);
  const auto step = [&](const at::Tensor& grad, const at::Tensor& copy) {
    adamw_step(f.state, grad, copy, f.whole, f.options);
  };
  EXPECT_THROW(step(random_N("grad", 1, kCount - 1), {}), ShapeError);
  EXPECT_THROW(step(grad_N.to(at::kDouble), {}), ShapeError);
  EXPECT_THROW(step({}, {}), ShapeError);
  EXPECT_THROW(step(grad_N, at::zeros({kCount}, at::kDouble)), ShapeError);
  EXPECT_THROW(step(grad_N, at::zeros({kCount + 1}, at::kBFloat16)), ShapeError);
  EXPECT_TRUE(at::equal(f.state.master_N, start));
}

TEST(Adamw, RefusesSegmentsThatOverlapOrLeaveTheShard) {
  const std::vector<std::vector<Segment>> wrong = {
      {{0, kCount + 1}}, {{-1, 4}}, {{0, 8}, {7, 9}}, {{5, 4}}, {{10, 20}, {0, 5}}};
  for (const std::vector<Segment>& segments : wrong) {
    Fixture f;
    EXPECT_THROW(adamw_step(f.state, random_N("grad", 1), {}, segments, f.options), ShapeError);
  }
}

TEST(Adamw, RefusesNumbersOutOfRange) {
  Fixture f;
  const auto refused = [&](AdamwOptions options) {
    EXPECT_THROW(adamw_step(f.state, random_N("grad", 1), {}, f.whole, options), ConfigError);
  };
  refused({.lr = 1e-3, .step = 0});
  refused({.lr = -1e-3});
  refused({.lr = std::nan("")});
  refused({.lr = 1e-3, .beta1 = 1.0});
  refused({.lr = 1e-3, .beta2 = -0.1});
  refused({.lr = 1e-3, .epsilon = -1});
}

TEST(Adamw, TakesBfloat16GradientsAsTheyAre) {
  Fixture narrow, wide;
  const at::Tensor grad_N = random_N("grad", 0.5).to(at::kBFloat16);
  adamw_step(narrow.state, grad_N, {}, narrow.whole, narrow.options);
  adamw_step(wide.state, grad_N.to(at::kFloat), {}, wide.whole, wide.options);
  EXPECT_TRUE(at::equal(narrow.state.master_N, wide.state.master_N));
  EXPECT_TRUE(at::equal(narrow.state.exp_avg_sq_N, wide.state.exp_avg_sq_N));
}

TEST(Adamw, TheStepsDecayMultipliesTheSegments) {
  Fixture f;
  f.options.decay = 0.0;
  f.options.lr = 0.5;
  adamw_step(f.state, at::zeros({kCount}, at::kFloat), {}, f.whole, f.options);
  EXPECT_TRUE(at::equal(f.state.master_N, random_N("master", 0.1)));
}

/// States in bf16, one segment, whose parameter begins `before` elements ahead of the shard.
struct Bf16Fixture {
  AdamwState state{random_N("master", 0.1).to(at::kBFloat16), at::zeros({kCount}, at::kBFloat16),
                   at::zeros({kCount}, at::kBFloat16)};
  AdamwOptions options{.lr = 3e-3, .step = 1};

  void run(std::vector<Segment> segments, int64_t steps = 3) {
    for (options.step = 1; options.step <= steps; ++options.step)
      adamw_step(state, random_N("grad" + std::to_string(options.step), 0.5), {}, segments, options);
  }
};

TEST(Adamw, Bfloat16StatesRoundToANeighbourOfTheFp32Result) {
  Bf16Fixture f;
  AdamwState exact{f.state.master_N.to(at::kFloat), at::zeros({kCount}, at::kFloat),
                   at::zeros({kCount}, at::kFloat)};
  const std::vector<Segment> whole{{.begin = 0, .end = kCount, .weight_decay = 0.1, .rounding_key = 5}};
  f.run(whole, 1);
  adamw_step(exact, random_N("grad1", 0.5), {}, whole, {.lr = 3e-3, .step = 1});
  const auto expect_neighbours = [](const at::Tensor& rounded, const at::Tensor& wanted, const char* name) {
    const at::Tensor off = rounded.to(at::kFloat).sub(wanted).abs();
    EXPECT_TRUE(off.le(wanted.abs().mul(1.0 / 128)).all().item<bool>()) << name;
    EXPECT_GT(off.gt(wanted.abs().mul(1.0 / 256)).sum().item<int64_t>(), 0) << name << " goes to the nearest";
    EXPECT_GT(rounded.to(at::kFloat).abs().gt(wanted.abs()).sum().item<int64_t>(), 0)
        << name << " is only truncated";
  };
  expect_neighbours(f.state.master_N, exact.master_N, "master");
  expect_neighbours(f.state.exp_avg_N, exact.exp_avg_N, "exp_avg");
  expect_neighbours(f.state.exp_avg_sq_N, exact.exp_avg_sq_N, "exp_avg_sq");
}

TEST(Adamw, StochasticRoundingIsRightInTheMean) {
  // Every element makes the same step of a fortieth of bf16's spacing, which rounding to nearest would lose.
  constexpr int64_t kMany = 1 << 16;
  AdamwState state{at::full({kMany}, 1.0, at::kBFloat16), at::zeros({kMany}, at::kBFloat16),
                   at::zeros({kMany}, at::kBFloat16)};
  const double lr = 1.0 / 128 / 40;
  const std::vector<Segment> whole{{.begin = 0, .end = kMany, .rounding_key = 9}};
  adamw_step(state, at::full({kMany}, -1.0, at::kFloat), {}, whole, {.lr = lr, .step = 1});
  const double moved = state.master_N.to(at::kDouble).sub(1.0).mean().item<double>();
  // p (1 - p) / n under the root is 0.6 thousandths of a spacing; four times that.
  EXPECT_NEAR(moved, lr, 4 * 0.0006 / 128);
}

TEST(Adamw, RandomBitsDependOnTheParametersElementsAlone) {
  Bf16Fixture whole, cut, other_key;
  whole.run({{.begin = 0, .end = kCount, .rounding_key = 5, .first_element = 3}});
  std::vector<Segment> pieces;
  for (int64_t begin = 0, length = 1; begin < kCount; begin += length, length = length % 37 + 3) {
    pieces.push_back({.begin = begin,
                      .end = std::min(begin + length, kCount),
                      .rounding_key = 5,
                      .first_element = 3 + begin});
  }
  cut.run(pieces);
  EXPECT_TRUE(at::equal(whole.state.master_N, cut.state.master_N));
  EXPECT_TRUE(at::equal(whole.state.exp_avg_N, cut.state.exp_avg_N));
  EXPECT_TRUE(at::equal(whole.state.exp_avg_sq_N, cut.state.exp_avg_sq_N));
  other_key.run({{.begin = 0, .end = kCount, .rounding_key = 6, .first_element = 3}});
  EXPECT_FALSE(at::equal(whole.state.master_N, other_key.state.master_N));
}

TEST(Adamw, RefusesStatesOfMixedDtypesAndACopyOfBfloat16States) {
  Bf16Fixture f;
  const std::vector<Segment> whole{{0, kCount}};
  const at::Tensor grad_N = random_N("grad", 1);
  EXPECT_THROW(adamw_step(f.state, grad_N, at::zeros({kCount}, at::kBFloat16), whole, f.options), ShapeError);
  f.state.exp_avg_N = at::zeros({kCount}, at::kFloat);
  EXPECT_THROW(adamw_step(f.state, grad_N, {}, whole, f.options), ShapeError);
  Fixture fp32;
  EXPECT_THROW(
      adamw_step(fp32.state, grad_N, {}, AdamwSegments({{0, 5}}, kCount - 1, at::kCPU), fp32.options),
      ShapeError);
  EXPECT_THROW(adamw_step(fp32.state, grad_N, {}, fp32.whole, fp32.options,
                          {.step = at::full({1}, int64_t{1}, at::kLong)}),
               NotSupported);
}

}  // namespace
}  // namespace apus::optim
