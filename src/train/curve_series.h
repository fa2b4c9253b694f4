#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apus/train/curve.h"

namespace apus::train {

/// The points whose value is a number.
std::vector<CurvePoint> finite_points(const std::vector<CurvePoint>& points);

/// Points that stand together in a picture.
struct CurveBin {
  double step = 0.0;
  double mean = 0.0;
  double least = 0.0;
  double largest = 0.0;
};

/// Finite points, consecutive ones joined, so that there are at most `count` bins.
std::vector<CurveBin> binned(const std::vector<CurvePoint>& points, size_t count);

/// Each value replaced by the mean of the `window` finite values around it; of fewer towards the ends, where
/// at least a third of the window counts, so that the last value alone does not make a hook.
std::vector<CurvePoint> smoothed(const std::vector<CurvePoint>& points, size_t window);

/// Values at which an axis is marked.
struct AxisTicks {
  double first = 0.0;
  double step = 1.0;
  int count = 0;

  double value(int i) const { return first + step * i; }
  /// The value in as few digits as tell ticks apart.
  std::string label(int i) const;
};

/// Multiples of 1, 2 or 5 times a power of ten within [least, largest], about `wanted` of them.
AxisTicks ticks_between(double least, double largest, int wanted);

}  // namespace apus::train
