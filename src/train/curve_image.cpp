#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "apus/base/error.h"
#include "apus/train/curve.h"
#include "train/curve_series.h"
#include "train/png.h"
#include "train/raster.h"

namespace apus::train {
namespace {

constexpr Colour kBlack{33, 37, 41}, kGrey{108, 117, 125}, kGrid{228, 231, 235};
/// By place in a panel: blue, vermilion, green, purple; told apart by the colour-blind, too.
constexpr std::array<Colour, 4> kSeriesColours = {
    {{0, 114, 178}, {213, 94, 0}, {0, 158, 115}, {120, 94, 180}}};
constexpr int kTextScale = 2;
/// Beyond it a moving mean says more than the points.
constexpr size_t kManyPoints = 24;
/// Points of an evaluation that are shown as dots.
constexpr size_t kMostDots = 80;

/// Where values lie on the canvas.
struct Plot {
  int left = 0, right = 0, top = 0, bottom = 0;
  double first_step = 0.0, last_step = 1.0;
  double least = 0.0, largest = 1.0;

  double x(double step) const {
    return left + (step - first_step) / (last_step - first_step) * (right - left);
  }
  double y(double value) const { return bottom - (value - least) / (largest - least) * (bottom - top); }
};

/// Makes room around values; equal ones get some, too.
void widen(double& least, double& largest) {
  const double span = largest - least;
  const double room = span > 0 ? span * 0.05 : std::max(std::abs(least) * 0.05, 1e-6);
  least -= room;
  largest += room;
}

Plot plot_of(const CurvePanel& panel, int width, int top, int bottom) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Plot plot{.left = 96,
            .right = width - 24,
            .top = top + 44,
            .bottom = bottom - 40,
            .first_step = kInfinity,
            .last_step = -kInfinity,
            .least = kInfinity,
            .largest = -kInfinity};
  for (const CurveSeries& series : panel.series) {
    for (const CurvePoint& point : finite_points(series.points)) {
      plot.first_step = std::min(plot.first_step, static_cast<double>(point.step));
      plot.last_step = std::max(plot.last_step, static_cast<double>(point.step));
      plot.least = std::min(plot.least, point.value);
      plot.largest = std::max(plot.largest, point.value);
    }
  }
  if (!(plot.least <= plot.largest)) plot.least = plot.largest = plot.first_step = plot.last_step = 0.0;
  widen(plot.least, plot.largest);
  if (plot.first_step == plot.last_step) {
    plot.first_step -= 0.5;
    plot.last_step += 0.5;
  }
  return plot;
}

void draw_axes(Canvas& canvas, const Plot& plot) {
  const AxisTicks values = ticks_between(plot.least, plot.largest, 6);
  for (int i = 0; i < values.count; ++i) {
    const double y = std::round(plot.y(values.value(i)));
    canvas.fill({plot.left + 0.0, y}, {plot.right + 0.0, y}, {.colour = kGrid});
    const std::string label = values.label(i);
    canvas.text(plot.left - 8 - text_width(label, kTextScale), static_cast<int>(y) - 7, label,
                {.colour = kGrey}, kTextScale);
  }
  AxisTicks steps = ticks_between(plot.first_step, plot.last_step, 8);
  if (steps.step < 1) steps = {.first = std::ceil(plot.first_step), .step = 1, .count = 1};
  for (int i = 0; i < steps.count; ++i) {
    const double x = std::round(plot.x(steps.value(i)));
    canvas.fill({x, plot.bottom + 0.0}, {x, plot.bottom + 5.0}, {.colour = kGrey});
    const std::string label = steps.label(i);
    const int left = std::min(static_cast<int>(x) - text_width(label, kTextScale) / 2,
                              canvas.width() - text_width(label, kTextScale));
    canvas.text(left, plot.bottom + 10, label, {.colour = kGrey}, kTextScale);
  }
  canvas.fill({plot.left + 0.0, plot.bottom + 0.0}, {plot.right + 0.0, plot.bottom + 0.0}, {.colour = kGrey});
  canvas.fill({plot.left + 0.0, plot.top + 0.0}, {plot.left + 0.0, plot.bottom + 0.0}, {.colour = kGrey});
}

void draw_polyline(Canvas& canvas, const Plot& plot, const std::vector<CurveBin>& bins, const Ink& ink) {
  if (bins.size() == 1)
    canvas.dot({plot.x(bins[0].step), plot.y(bins[0].mean)}, {.colour = ink.colour, .width = 7});
  for (size_t i = 1; i < bins.size(); ++i) {
    canvas.line({plot.x(bins[i - 1].step), plot.y(bins[i - 1].mean)},
                {plot.x(bins[i].step), plot.y(bins[i].mean)}, ink);
  }
}

/// From the least to the largest value of each column, where a column holds several points.
void draw_spread(Canvas& canvas, const Plot& plot, const std::vector<CurveBin>& bins, const Ink& ink) {
  for (const CurveBin& bin : bins) {
    if (bin.least < bin.largest)
      canvas.line({plot.x(bin.step), plot.y(bin.least)}, {plot.x(bin.step), plot.y(bin.largest)}, ink);
  }
}

bool is_evaluation(const CurveSeries& series) {
  return series.name.starts_with("eval_");
}

void draw_series(Canvas& canvas, const Plot& plot, const CurveSeries& series, Colour colour) {
  const auto columns = static_cast<size_t>(plot.right - plot.left);
  const std::vector<CurveBin> raw = binned(series.points, columns);
  const bool smooth = series.points.size() > kManyPoints && !is_evaluation(series);
  const Ink strong{.colour = colour, .width = 2.4};
  if (!smooth) {
    draw_polyline(canvas, plot, raw, strong);
    if (is_evaluation(series) && raw.size() <= kMostDots) {
      for (const CurveBin& bin : raw)
        canvas.dot({plot.x(bin.step), plot.y(bin.mean)}, {.colour = colour, .width = 7});
    }
    return;
  }
  const Ink pale{.colour = colour, .width = 1.2, .opacity = 0.3};
  draw_spread(canvas, plot, raw, pale);
  draw_polyline(canvas, plot, raw, pale);
  draw_polyline(canvas, plot, binned(smoothed(series.points, series.points.size() / 20 + 1), columns),
                strong);
}

std::string legend_of(const CurveSeries& series) {
  const std::vector<CurvePoint> finite = finite_points(series.points);
  std::array<char, 64> last{};
  if (finite.empty()) return series.name + " (no number)";
  std::snprintf(last.data(), last.size(), " %.4g", finite.back().value);
  const size_t left_out = series.points.size() - finite.size();
  return series.name + last.data() + (left_out > 0 ? " (" + std::to_string(left_out) + " not finite)" : "");
}

/// Right-aligned over the plot: a stroke and the name of each series with its last value.
void draw_legend(Canvas& canvas, const CurvePanel& panel, int top, int right) {
  for (size_t i = panel.series.size(); i-- > 0;) {
    const std::string words = legend_of(panel.series[i]);
    right -= text_width(words, kTextScale);
    canvas.text(right, top, words, {.colour = kBlack}, kTextScale);
    const Ink ink{.colour = kSeriesColours[i % kSeriesColours.size()], .width = 4};
    canvas.line({right - 32.0, top + 7.0}, {right - 12.0, top + 7.0}, ink);
    right -= 48;
  }
}

void draw_panel(Canvas& canvas, const CurvePanel& panel, int top, int bottom) {
  const Plot plot = plot_of(panel, canvas.width(), top, bottom);
  canvas.text(plot.left, top + 16, panel.title, {.colour = kBlack}, kTextScale);
  draw_legend(canvas, panel, top + 16, plot.right);
  draw_axes(canvas, plot);
  for (size_t i = 0; i < panel.series.size(); ++i)
    draw_series(canvas, plot, panel.series[i], kSeriesColours[i % kSeriesColours.size()]);
}

}  // namespace

std::string curve_png(const std::vector<CurvePanel>& panels, const CurveImageOptions& options) {
  const int count = std::max(static_cast<int>(panels.size()), 1);
  APUS_CHECK(options.width >= 200 && options.width <= 8192 && options.panel_height >= 120 &&
                 options.panel_height <= 8192 / count,
             ConfigError, "a curve of ", options.width, " x ", options.panel_height, " pixels and ", count,
             " panels: expected 200 x 120 to 8192 x 8192 in all");
  Canvas canvas(options.width, options.panel_height * count);
  for (size_t i = 0; i < panels.size(); ++i) {
    const int top = static_cast<int>(i) * options.panel_height;
    draw_panel(canvas, panels[i], top, top + options.panel_height);
  }
  return encode_png({.width = canvas.width(), .height = canvas.height(), .rgb = canvas.rgb()});
}

}  // namespace apus::train
