#include "train/step_sums.h"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

#include "apus/base/error.h"
#include "apus/comm/fake_communicator.h"

namespace apus::train {
namespace {

using Numbers = std::vector<double>;

at::Tensor scalar(float value) {
  return at::full({}, value);
}

TEST(StepSums, ReadsLossesOneByOneAndMetricsTogether) {
  StepSums sums(2);
  sums.add({scalar(1.5F)}, at::tensor({1.0, 2.0}, at::kDouble));
  sums.add({scalar(2.5F), at::Tensor()}, {});
  sums.add({scalar(4.0F)}, at::tensor({10.0, 20.0}, at::kDouble));
  const StepSums::Values values = sums.read();
  EXPECT_EQ(values.losses, (Numbers{1.5, 2.5, 0.0, 4.0}));
  EXPECT_EQ(values.metric_sums, (Numbers{11.0, 22.0}));
}

TEST(StepSums, NothingAddedIsNothing) {
  const StepSums::Values values = StepSums(2).read();
  EXPECT_TRUE(values.losses.empty());
  EXPECT_EQ(values.metric_sums, (Numbers{0.0, 0.0}));
  StepSums none(0);
  none.add({scalar(1.0F)}, {});
  EXPECT_TRUE(none.read().metric_sums.empty());
}

TEST(StepSums, KeepsNoTape) {
  const at::Tensor weight = scalar(3.0F).set_requires_grad(true);
  StepSums sums(0);
  sums.add({weight.mul(2)}, {});
  EXPECT_EQ(sums.read().losses, Numbers{6.0});
}

TEST(StepSums, SendsAllAlongWithOneNumberMore) {
  StepSums sums(2);
  sums.add({scalar(1.5F), scalar(2.5F)}, at::tensor({1.0, 2.0}, at::kDouble));
  const ComingValues coming = sums.send(at::full({1}, 7.0, at::kDouble));
  EXPECT_TRUE(coming.are_here()) << "they did not travel";
  const StepValues values = coming.read();
  EXPECT_EQ(values.losses, (Numbers{1.5, 2.5}));
  EXPECT_EQ(values.metric_sums, (Numbers{1.0, 2.0}));
  EXPECT_EQ(values.extra, 7.0);
  StepSums bare(2);
  bare.add({scalar(1.5F)}, {});
  const StepValues few = bare.send(at::full({1}, 7.0, at::kDouble)).read();
  EXPECT_EQ(few.metric_sums, (Numbers{0.0, 0.0}));
  EXPECT_EQ(few.extra, 7.0);
}

TEST(StepSums, FindsALossThatIsNoNumber) {
  StepSums sums(0);
  sums.add({scalar(1.0F), at::Tensor()}, {});
  EXPECT_EQ(sums.found_inf().item<float>(), 0.0F);
  sums.add({scalar(INFINITY)}, {});
  EXPECT_EQ(sums.found_inf().item<float>(), 1.0F);
}

TEST(StepSums, EachPartOfTheLossHasItsDivisor) {
  EXPECT_EQ(divided({scalar(6.0F), at::Tensor(), scalar(10.0F)}, {3.0, 7.0, 5.0}).item<float>(), 4.0F);
  EXPECT_EQ(divisors_of({4, 0}), (Numbers{4.0, 1.0})) << "zeros are divided by 1";
}

TEST(StepSums, EachMetricHasItsDivisor) {
  const std::vector<ObjectiveMetric> metrics = {{"a", 1}, {"b", 0}};
  EXPECT_EQ(means_of({6.0, 8.0}, metrics, {4.0, 3.0}), (Numbers{2.0, 2.0}));
  EXPECT_EQ(metric_weights(metrics, {4, 3}), (std::vector<int64_t>{3, 4}));
}

TEST(StepSums, OneRanksSumIsItsOwn) {
  const auto alone = comm::make_fake_communicator({});
  Numbers values = {1.0, 2.5};
  sum_over_ranks(*alone, values);
  EXPECT_EQ(values, (Numbers{1.0, 2.5}));
}

}  // namespace
}  // namespace apus::train
