#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace apus::cli {

/// How far a run is.
struct ProgressFigures {
  int64_t step = 0;
  int64_t max_steps = 0;
  /// Of the step, where they are known.
  std::optional<double> loss = {};
  std::optional<double> learning_rate = {};
  std::optional<double> tokens_per_second = {};
  double elapsed_seconds = 0;
  /// None before the first step of this process has been timed.
  std::optional<double> remaining_seconds = {};
};

/// What the terminal can show.
struct ProgressLook {
  int columns = 80;
  /// Blocks of an eighth of a column, else `#`.
  bool unicode = true;
  bool colours = false;
};

/// One line, one column shorter than the terminal so that it never wraps: percentage, bar, step, loss,
/// learning rate, tokens a second, time passed and left. What a narrow terminal has no room for is left out,
/// the least needed first; the bar takes what is left over.
std::string progress_line(const ProgressFigures& figures, const ProgressLook& look);

/// "1:02:03" or "02:03".
std::string clock_text(double seconds);

}  // namespace apus::cli
