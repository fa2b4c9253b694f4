#include "train/curve_series.h"

#include <gtest/gtest.h>

#include <cmath>

namespace apus::train {
namespace {

std::vector<std::string> labels(const AxisTicks& ticks) {
  std::vector<std::string> texts;
  for (int i = 0; i < ticks.count; ++i) texts.push_back(ticks.label(i));
  return texts;
}

TEST(CurveSeries, LeavesOutWhatIsNoNumber) {
  const auto finite = finite_points({{1, std::nan("")}, {2, 1.0}, {3, INFINITY}});
  ASSERT_EQ(finite.size(), 1u);
  EXPECT_EQ(finite[0].step, 2);
}

TEST(CurveSeries, JoinsConsecutivePoints) {
  const auto bins = binned({{1, 1.0}, {2, 3.0}, {3, 5.0}, {4, 5.0}}, 2);
  ASSERT_EQ(bins.size(), 2u);
  EXPECT_DOUBLE_EQ(bins[0].step, 1.5);
  EXPECT_DOUBLE_EQ(bins[0].mean, 2.0);
  EXPECT_DOUBLE_EQ(bins[0].least, 1.0);
  EXPECT_DOUBLE_EQ(bins[0].largest, 3.0);
  EXPECT_DOUBLE_EQ(bins[1].mean, 5.0);
  EXPECT_EQ(binned({{1, 1.0}}, 9).size(), 1u);
  EXPECT_TRUE(binned({}, 9).empty());
}

TEST(CurveSeries, KeepsEveryPointInSomeBin) {
  std::vector<CurvePoint> points;
  for (int i = 0; i < 1000; ++i) points.push_back({i, i == 777 ? 9.0 : 0.0});
  double largest = 0;
  for (const CurveBin& bin : binned(points, 37)) largest = std::max(largest, bin.largest);
  EXPECT_EQ(largest, 9.0);
}

TEST(CurveSeries, SmoothsBySymmetricMeans) {
  const auto means = smoothed({{1, 0.0}, {2, 3.0}, {3, 6.0}, {4, 0.0}}, 3);
  ASSERT_EQ(means.size(), 4u);
  EXPECT_DOUBLE_EQ(means[0].value, 0.0);
  EXPECT_DOUBLE_EQ(means[1].value, 3.0);
  EXPECT_DOUBLE_EQ(means[2].value, 3.0);
  EXPECT_DOUBLE_EQ(means[3].value, 0.0);
}

TEST(AxisTicks, AreRoundNumbersWithin) {
  EXPECT_EQ(labels(ticks_between(0.03, 1.02, 5)),
            (std::vector<std::string>{"0.2", "0.4", "0.6", "0.8", "1.0"}));
  EXPECT_EQ(labels(ticks_between(-1, 1, 4)), (std::vector<std::string>{"-1.0", "-0.5", "0.0", "0.5", "1.0"}));
  EXPECT_EQ(labels(ticks_between(1, 3000, 6)),
            (std::vector<std::string>{"500", "1000", "1500", "2000", "2500", "3000"}));
}

TEST(AxisTicks, TellVeryLargeAndVerySmallNumbers) {
  EXPECT_EQ(labels(ticks_between(0, 3e8, 3)), (std::vector<std::string>{"0", "1e+08", "2e+08", "3e+08"}));
  EXPECT_EQ(labels(ticks_between(0, 2e-5, 2)), (std::vector<std::string>{"0", "1e-05", "2e-05"}));
}

TEST(AxisTicks, AreOneWhereThereIsNoRange) {
  EXPECT_EQ(ticks_between(2, 2, 5).count, 1);
  EXPECT_EQ(ticks_between(2, 2, 5).value(0), 2.0);
}

}  // namespace
}  // namespace apus::train
