#include "apus/train/curve.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/train/support/png_reader.h"

namespace apus::train {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<CurvePoint> falling(int count) {
  std::vector<CurvePoint> points;
  for (int i = 1; i <= count; ++i) points.push_back({i, 1.0 / i});
  return points;
}

std::string line_of(int step, const nlohmann::ordered_json& values) {
  nlohmann::ordered_json record = values;
  record["global_step/max_steps"] = std::to_string(step) + "/100";
  return record.dump() + "\n";
}

TEST(Curve, ReadsLossesAndMarginsFromTheLog) {
  const ScratchFolder run;
  const auto log = run.put("logging.jsonl", line_of(1, {{"loss", 2.0}, {"rewards/margins", 0.1}}) +
                                                line_of(2, {{"loss", 1.0}, {"rewards/margins", 0.2}}) +
                                                line_of(2, {{"eval_loss", 1.5}}));
  const auto panels = read_curves(log);
  ASSERT_EQ(panels.size(), 2u);
  ASSERT_EQ(panels[0].series.size(), 2u);
  EXPECT_EQ(panels[0].series[0].name, "loss");
  ASSERT_EQ(panels[0].series[0].points.size(), 2u);
  EXPECT_EQ(panels[0].series[0].points[1].step, 2);
  EXPECT_EQ(panels[0].series[0].points[1].value, 1.0);
  EXPECT_EQ(panels[0].series[1].name, "eval_loss");
  ASSERT_EQ(panels[1].series.size(), 1u);
  EXPECT_EQ(panels[1].series[0].name, "rewards/margins");
}

TEST(Curve, TakesTheLaterOfTwoLinesOfAStep) {
  const ScratchFolder run;
  const auto log = run.put("logging.jsonl", line_of(1, {{"loss", 3.0}}) + line_of(2, {{"loss", 2.0}}) +
                                                line_of(1, {{"loss", 2.5}}));
  const auto points = read_curves(log).at(0).series.at(0).points;
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].value, 2.5);
}

TEST(Curve, PassesOverTornAndForeignLines) {
  const ScratchFolder run;
  const auto log =
      run.put("logging.jsonl", line_of(1, {{"loss", 3.0}}) + "[1]\n" + R"({"loss": 1})" + "\n" +
                                   R"({"loss": 1, "global_step/max_steps": "x"})" + "\n" + R"({"loss": 2.)");
  EXPECT_EQ(read_curves(log).at(0).series.at(0).points.size(), 1u);
  EXPECT_TRUE(read_curves(run / "none.jsonl").empty());
}

TEST(Curve, KeepsWhereTheLossWasNoNumber) {
  const ScratchFolder run;
  const auto log = run.put("logging.jsonl", line_of(1, {{"loss", nullptr}}) + line_of(2, {{"loss", 1.0}}));
  const auto points = read_curves(log).at(0).series.at(0).points;
  ASSERT_EQ(points.size(), 2u);
  EXPECT_TRUE(std::isnan(points[0].value));
}

TEST(Sparkline, RisesWithTheValues) {
  std::vector<CurvePoint> points;
  for (int i = 0; i < 8; ++i) points.push_back({i, static_cast<double>(i)});
  EXPECT_EQ(sparkline(points), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(sparkline(points, {.unicode = false}), "_.:-=+*#");
}

TEST(Sparkline, JoinsPointsThatDoNotFit) {
  EXPECT_EQ(sparkline({{1, 0.0}, {2, 0.0}, {3, 7.0}, {4, 7.0}}, {.width = 2, .unicode = false}), "_#");
  EXPECT_EQ(sparkline(falling(1000), {.width = 10, .unicode = false}).size(), 10u);
}

TEST(Sparkline, TakesOnePointEqualOnesAndNone) {
  EXPECT_EQ(sparkline({{1, 5.0}}, {.unicode = false}), "_");
  EXPECT_EQ(sparkline({{1, 5.0}, {2, 5.0}}, {.unicode = false}), "__");
  EXPECT_EQ(sparkline({}), "");
  EXPECT_EQ(sparkline({{1, kNan}, {2, 1.0}}, {.unicode = false}), "_");
}

TEST(CurveText, SaysFirstLastLeastAndLargest) {
  const CurvePanel panel{
      .title = "loss",
      .series = {{"loss", {{1, 2.0}, {2, 3.0}, {3, 1.0}, {4, 1.5}, {5, kNan}}}, {"eval_loss", {{4, 1.25}}}}};
  EXPECT_EQ(
      curve_text({panel}, {.unicode = false}),
      "loss       =#_:  first 2 (step 1)     last 1.5 (step 4)   min 1 (step 3)     max 3 (step 2)     1 not "
      "finite\n"
      "eval_loss  _     first 1.25 (step 4)  last 1.25 (step 4)  min 1.25 (step 4)  max 1.25 (step 4)\n");
}

/// Share of pixels that are not white.
double inked(const DecodedPng& png) {
  int64_t count = 0;
  for (size_t i = 0; i < png.rgb.size(); i += 3)
    count += png.rgb[i] != 255 || png.rgb[i + 1] != 255 || png.rgb[i + 2] != 255;
  return static_cast<double>(count) * 3 / static_cast<double>(png.rgb.size());
}

int64_t pixels_of(const DecodedPng& png, uint8_t red, uint8_t green, uint8_t blue) {
  int64_t count = 0;
  for (size_t i = 0; i < png.rgb.size(); i += 3)
    count += png.rgb[i] == red && png.rgb[i + 1] == green && png.rgb[i + 2] == blue;
  return count;
}

TEST(CurvePng, DrawsEachPanelBelowTheOther) {
  const CurvePanel panel{.title = "loss",
                         .series = {{"loss", falling(50)}, {"eval_loss", {{25, 0.5}, {50, 0.4}}}}};
  const DecodedPng one = decode_png(curve_png({panel}));
  EXPECT_EQ(one.width, 960);
  EXPECT_EQ(one.height, 420);
  EXPECT_GT(pixels_of(one, 0, 114, 178), 500);  // the smoothed line
  EXPECT_GT(pixels_of(one, 213, 94, 0), 50);    // the evaluations' dots
  EXPECT_EQ(decode_png(curve_png({panel, panel})).height, 840);
}

TEST(CurvePng, PutsLargerValuesHigher) {
  const CurvePanel panel{.title = "loss", .series = {{"loss", {{1, 1.0}, {2, 0.0}}}}};
  const DecodedPng png = decode_png(curve_png({panel}));
  const auto first_row_of_line = [&](int column) {
    for (int y = 44; y < png.height; ++y)
      if (png.rgb[static_cast<size_t>((y * png.width + column) * 3)] == 0) return y;
    return -1;
  };
  const int left = first_row_of_line(110), right = first_row_of_line(920);
  EXPECT_GT(left, 0);
  EXPECT_LT(left + 200, right);
}

TEST(CurvePng, TakesWhateverARunLogs) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<std::vector<CurvePoint>> runs = {
      {},
      {{1, 0.5}},
      {{1, kNan}},
      {{1, 0.5}, {2, 0.5}},
      {{7, 1e300}, {9, -1e300}},
      {{1, 1e-320}, {2, 0.0}},
      {{1, infinity}, {2, 1.0}, {3, -infinity}, {1'000'000'000'000, 2.0}}};
  for (const auto& points : runs) {
    const DecodedPng png = decode_png(curve_png({{.title = "loss", .series = {{"loss", points}}}}));
    EXPECT_GT(inked(png), 0.001) << points.size();
    EXPECT_LT(inked(png), 0.5) << points.size();
  }
  EXPECT_EQ(decode_png(curve_png({})).height, 420);
}

TEST(CurvePng, TakesAMillionPoints) {
  const CurvePanel panel{.title = "loss", .series = {{"loss", falling(1'000'000)}}};
  EXPECT_GT(pixels_of(decode_png(curve_png({panel})), 0, 114, 178), 500);
}

TEST(CurvePng, GivesTheSameBytesAgain) {
  const CurvePanel panel{.title = "loss", .series = {{"loss", falling(100)}}};
  EXPECT_EQ(curve_png({panel}), curve_png({panel}));
}

TEST(CurvePng, RefusesSizesThatNobodyMeans) {
  EXPECT_THROW(curve_png({}, {.width = 100}), ConfigError);
  EXPECT_THROW(curve_png({}, {.width = 960, .panel_height = 9000}), ConfigError);
}

TEST(Curve, WritesPictureAndTextBesideTheLog) {
  const ScratchFolder run;
  write_curves(run.path());
  EXPECT_EQ(run.size(), 0);
  run.put("logging.jsonl", line_of(1, {{"loss", 2.0}}) + line_of(2, {{"loss", 1.0}}));
  write_curves(run.path());
  EXPECT_EQ(decode_png(read_file(run / "loss.png")).width, 960);
  EXPECT_TRUE(read_file(run / "loss.txt").starts_with("loss  █▁  first 2 (step 1)"));
}

}  // namespace
}  // namespace apus::train
