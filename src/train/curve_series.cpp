#include "train/curve_series.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace apus::train {

std::vector<CurvePoint> finite_points(const std::vector<CurvePoint>& points) {
  std::vector<CurvePoint> finite;
  for (const CurvePoint& point : points)
    if (std::isfinite(point.value)) finite.push_back(point);
  return finite;
}

std::vector<CurveBin> binned(const std::vector<CurvePoint>& points, size_t count) {
  const std::vector<CurvePoint> finite = finite_points(points);
  const size_t bins = std::min(count, finite.size());
  std::vector<CurveBin> result;
  for (size_t i = 0; i < bins; ++i) {
    const size_t begin = i * finite.size() / bins, end = (i + 1) * finite.size() / bins;
    CurveBin bin{.least = finite[begin].value, .largest = finite[begin].value};
    const auto share = 1.0 / static_cast<double>(end - begin);
    for (size_t j = begin; j < end; ++j) {
      bin.step += static_cast<double>(finite[j].step) * share;
      bin.mean += finite[j].value * share;
      bin.least = std::min(bin.least, finite[j].value);
      bin.largest = std::max(bin.largest, finite[j].value);
    }
    result.push_back(bin);
  }
  return result;
}

std::vector<CurvePoint> smoothed(const std::vector<CurvePoint>& points, size_t window) {
  std::vector<CurvePoint> finite = finite_points(points);
  std::vector<double> sums(finite.size() + 1, 0.0);
  for (size_t i = 0; i < finite.size(); ++i) sums[i + 1] = sums[i] + finite[i].value;
  for (size_t i = 0; i < finite.size(); ++i) {
    const size_t after = finite.size() - 1 - i;
    const size_t side = std::max(std::min({window / 2, i, after}), window / 6);
    const size_t begin = i - std::min(side, i), end = i + std::min(side, after) + 1;
    finite[i].value = (sums[end] - sums[begin]) / static_cast<double>(end - begin);
  }
  return finite;
}

AxisTicks ticks_between(double least, double largest, int wanted) {
  const double rough = (largest - least) / std::max(wanted, 1);
  if (!(rough > 0) || !std::isfinite(rough)) return {.first = least, .step = 1.0, .count = 1};
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0})
    if (factor * power >= rough * (1 - 1e-9)) step = factor * power;
  const double first = std::ceil(least / step - 1e-9) * step;
  const auto count = static_cast<int>(std::floor((largest - first) / step + 1e-9)) + 1;
  return {.first = first, .step = step, .count = std::max(count, 0)};
}

std::string AxisTicks::label(int i) const {
  const double shown = std::abs(value(i)) < step * 1e-6 ? 0.0 : value(i);
  const double largest = std::max(std::abs(first), std::abs(value(count - 1)));
  std::array<char, 48> text{};
  if (largest >= 1e7 || (largest > 0 && largest < 1e-3)) {
    std::snprintf(text.data(), text.size(), "%.3g", shown);
    return text.data();
  }
  const int digits = std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 9);
  std::snprintf(text.data(), text.size(), "%.*f", digits, shown);
  return text.data();
}

}  // namespace apus::train
