#include "parallel/device_share.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "apus/base/error.h"
#include "tests/support/tensor_checks.h"

namespace apus::parallel {
namespace {

using memory::ElementRange;
using testing::random_tensor;

constexpr int64_t kElements = 3000, kPiece = 400;

optim::AdamwState states(at::ScalarType dtype) {
  return {random_tensor({kElements}, 1, dtype), at::zeros({kElements}, dtype), at::zeros({kElements}, dtype)};
}

/// The pieces of two groups whose states lie one behind the other, more than there are slots.
class Shared : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  Shared() {
    for (int64_t begin = 0; begin < kElements; begin += kPiece)
      ranges_.push_back({begin, std::min(begin + kPiece, kElements)});
    for (const ElementRange& range : ranges_) {
      segments_.emplace_back(
          std::vector<optim::Segment>{
              {.begin = 0, .end = range.size(), .rounding_key = 7, .first_element = range.begin}},
          range.size(), at::kCPU);
    }
  }

  optim::AdamwState part(const optim::AdamwState& all, const ElementRange& range) const {
    const auto cut = [&](const at::Tensor& one) { return one.slice(0, range.begin, range.end); };
    return {cut(all.master_N), cut(all.exp_avg_N), cut(all.exp_avg_sq_N)};
  }

  std::vector<SharedPiece> pieces(const optim::AdamwState& all, const at::Tensor& params) const {
    std::vector<SharedPiece> result;
    for (size_t index = 0; index < ranges_.size(); ++index) {
      const ElementRange& range = ranges_[index];
      result.push_back({.group = index < 3 ? size_t{1} : size_t{0},
                        .range = range,
                        .state = part(all, range),
                        .params_N = params.slice(0, range.begin, range.end),
                        .segments = &segments_[index]});
    }
    return result;
  }

  std::vector<ElementRange> ranges_;
  std::vector<optim::AdamwSegments> segments_;
};

INSTANTIATE_TEST_SUITE_P(Dtypes, Shared, ::testing::Values(at::kFloat, at::kBFloat16));

TEST_P(Shared, StatesComeHomeAsTheHostWouldHaveMadeThem) {
  const optim::AdamwState wanted = states(GetParam()), found = states(GetParam());
  const at::Tensor params = at::zeros({kElements}, at::kBFloat16);
  const bool rounds = GetParam() == at::kFloat;
  const at::Tensor copy = at::zeros({kElements}, at::kBFloat16);
  DeviceShare share({at::kCPU, kPiece, GetParam(), 3});
  for (int64_t step = 1; step <= 3; ++step) {
    const at::Tensor grad = random_tensor({kElements}, 10 + step);
    const optim::AdamwOptions options{.lr = 1e-2, .step = step};
    optim::adamw_step(wanted, grad, rounds ? copy : at::Tensor(),
                      std::vector<optim::Segment>{{.begin = 0, .end = kElements, .rounding_key = 7}}, options,
                      {.clip_factor = at::zeros({1}).add(0.5)});
    share.assign(pieces(found, params));
    if (step > 1) share.load_ahead();
    share.start(options, 0.5, {grad, grad, {}});
    for (const size_t group : {1, 0, 2}) share.updated(group);
    share.wait_home();
    EXPECT_TRUE(found.master_N.equal(wanted.master_N)) << step;
    EXPECT_TRUE(found.exp_avg_N.equal(wanted.exp_avg_N)) << step;
    EXPECT_TRUE(found.exp_avg_sq_N.equal(wanted.exp_avg_sq_N)) << step;
    EXPECT_TRUE(params.equal(rounds ? copy : wanted.master_N)) << step;
  }
}

TEST_P(Shared, WhatIsDroppedWasNotTouched) {
  const optim::AdamwState found = states(GetParam()), untouched = states(GetParam());
  DeviceShare share({at::kCPU, kPiece, GetParam(), 3});
  share.assign(pieces(found, at::zeros({kElements}, at::kBFloat16)));
  share.load_ahead();
  share.drop();
  share.start({.lr = 1e-2}, 1.0, {});
  share.updated(0);
  EXPECT_TRUE(found.master_N.equal(untouched.master_N));
  EXPECT_TRUE(found.exp_avg_sq_N.equal(untouched.exp_avg_sq_N));
}

TEST_P(Shared, AFailureComesOutOfTheNextCall) {
  DeviceShare share({at::kCPU, kPiece, GetParam(), 3});
  const at::Tensor grad = at::zeros({kElements});
  share.assign(pieces(states(GetParam()), at::zeros({kElements}, at::kBFloat16)));
  const auto update = [&] {
    share.start({.lr = std::nan("")}, 1.0, {grad, grad, {}});
    share.updated(0);
  };
  EXPECT_THROW(update(), Error);
  EXPECT_THROW(share.check(), Error);
}

TEST(BalancedShare, MovesToWhereBothEndTogetherAndBeyond) {
  EXPECT_DOUBLE_EQ(balanced_share(0.4, 100, 100), 0.4);
  // 60 in 120 ms and 40 in 40 ms: rates of 0.5 and 1, so two thirds would end together
  EXPECT_DOUBLE_EQ(balanced_share(0.4, 120, 40), 0.4 + 1.5 * (2.0 / 3.0 - 0.4));
  EXPECT_EQ(balanced_share(0.06, 1, 1000), 0.05);
  EXPECT_EQ(balanced_share(0.94, 1000, 1), 0.95);
}

/// Shares from the first one on, where so many elements take so long.
template <class Milliseconds>
double learnt(double share, const Milliseconds& host, const Milliseconds& device) {
  for (int step = 0; step < 8; ++step) share = balanced_share(share, host(share), device(share));
  return share;
}

TEST(BalancedShare, SettlesWhetherOrNotBothDrawOnOneMemory) {
  using Time = std::function<double(double)>;
  const Time bus = [](double share) { return 740 * share; };
  for (const double first : {0.1, 0.6, 0.9}) {
    const double apart = learnt<Time>(
        first, [](double share) { return 700 * (1 - share); }, bus);
    EXPECT_NEAR(apart, 700.0 / 1440.0, 0.01) << first;
    // 36 bytes an element on the host, 24 on the device, of one memory
    const double shared = learnt<Time>(
        first, [](double share) { return 795 - 265 * share; }, bus);
    EXPECT_NEAR(bus(shared), 795 - 265 * shared, 20) << first;
  }
}

}  // namespace
}  // namespace apus::parallel
