#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "apus/base/api.h"

namespace apus::train {

/// A value at a step.
struct APUS_API CurvePoint {
  int64_t step = 0;
  double value = 0.0;
};

/// One line of a curve, by rising step; values may be NaN or infinite (they are left out and counted).
struct APUS_API CurveSeries {
  /// As the key of logging.jsonl: "loss", "eval_loss", "rewards/margins".
  std::string name;
  std::vector<CurvePoint> points;
};

/// Lines that share an axis.
struct APUS_API CurvePanel {
  std::string title;
  std::vector<CurveSeries> series;
};

/// What logging.jsonl says about a run: a panel of losses, and for DPO one of reward margins. Series without
/// a point are left out. Where a step stands twice, the later line counts; lines that are no JSON (a torn
/// last one) are passed over. A file that is missing gives panels without series. Memory:      the points.
/// Throws:      FileError if the file cannot be read.
APUS_API std::vector<CurvePanel> read_curves(const std::filesystem::path& log);

/// Size of a picture.
struct APUS_API CurveImageOptions {
  int width = 960;
  /// Of one panel.
  int panel_height = 420;
};

/// The panels below one another as the bytes of a PNG file: raw values pale, a moving mean over them strong
/// where there are enough points, evaluations as dots. Axes have round numbers. Deterministic: the same bytes
/// for the same points and the same zlib. Memory: 3 bytes a pixel; the time does not
///              depend on the number of points beyond reading them once.
/// Throws:      ConfigError for a size below 200 x 120 or above 8192.
APUS_API std::string curve_png(const std::vector<CurvePanel>& panels, const CurveImageOptions& options = {});

/// Width of a text curve, and whether it may use block characters.
struct APUS_API SparklineOptions {
  /// Characters of the line itself.
  int width = 60;
  /// False: '.', ':', '-', ... in ASCII.
  bool unicode = true;
};

/// The values as one line of characters whose heights say where between least and largest each lies; a column
/// is the mean of the points that fall into it. Steps without a finite value are blanks.
APUS_API std::string sparkline(const std::vector<CurvePoint>& points, const SparklineOptions& options = {});

/// A line a series: name, sparkline, first, last, least and largest value with their steps.
APUS_API std::string curve_text(const std::vector<CurvePanel>& panels, const SparklineOptions& options = {});

/// Writes RUN_DIR/loss.png and RUN_DIR/loss.txt from RUN_DIR/logging.jsonl, each whole or not at all; where
/// nothing was logged yet, nothing. Call it on one rank. Throws:      FileError.
APUS_API void write_curves(const std::filesystem::path& run_dir);

}  // namespace apus::train
