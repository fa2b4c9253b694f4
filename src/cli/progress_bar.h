#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "apus/base/clock.h"
#include "cli/progress_line.h"

namespace apus::cli {

/// Where a bar is drawn.
struct ProgressBarOptions {
  /// Writes bytes to the terminal.
  std::function<void(std::string_view)> write;
  /// The terminal's width now: asked at every redraw, so that a new size is seen at once.
  std::function<int()> columns;
  const Clock* clock = nullptr;
  bool unicode = true;
  bool colours = false;
  /// Between two redraws: ten a second at most.
  Clock::Duration least_interval = std::chrono::milliseconds(100);
};

/// A line at the terminal's bottom that says how far a run is. Thread-safe.
class ProgressBar final {
 public:
  explicit ProgressBar(ProgressBarOptions options);
  /// Takes the bar away.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Shows a step. Time passed and left are measured here, from the first call of this process on: steps of
  /// an earlier attempt are not taken for fast ones. The first and the last step are drawn always.
  void update(ProgressFigures figures);
  /// Runs `print`, which writes whole lines, with the bar out of the way, and draws it again.
  void print_above(const std::function<void()>& print);
  /// Takes the bar away; the next update brings it back.
  void clear();

 private:
  void erase();
  void draw();

  ProgressBarOptions options_;
  std::mutex mutex_;
  std::optional<ProgressFigures> shown_;
  std::optional<Clock::Duration> started_, drawn_at_;
  int64_t first_step_ = 0;
  int drawn_columns_ = 0;  ///< of the line that stands on the terminal; 0: none
};

}  // namespace apus::cli
