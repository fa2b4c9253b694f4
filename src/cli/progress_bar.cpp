#include "cli/progress_bar.h"

#include <algorithm>

#include "apus/base/error.h"

namespace apus::cli {
namespace {

/// Columns that a line takes: code points that begin outside an escape sequence.
int columns_of(std::string_view line) {
  int columns = 0;
  bool in_escape = false;
  for (const char c : line) {
    if (c == '\x1b') in_escape = true;
    if (!in_escape && (static_cast<unsigned char>(c) & 0xC0) != 0x80) ++columns;
    if (in_escape && c == 'm') in_escape = false;
  }
  return columns;
}

}  // namespace

ProgressBar::ProgressBar(ProgressBarOptions options) : options_(std::move(options)) {
  APUS_CHECK(options_.write && options_.columns && options_.clock, Error,
             "a progress bar needs write, columns and clock");
}

ProgressBar::~ProgressBar() {
  try {
    clear();
  } catch (const std::exception&) {
    drawn_columns_ = 0;  // the terminal is gone: nothing is left to be taken away
  }
}

void ProgressBar::update(ProgressFigures figures) {
  const std::lock_guard lock(mutex_);
  const Clock::Duration now = options_.clock->steady_now();
  if (!started_) {
    started_ = now;
    first_step_ = figures.step;
  }
  figures.elapsed_seconds = seconds_between(*started_, now);
  const int64_t done = figures.step - first_step_;
  if (done > 0) {
    figures.remaining_seconds = figures.elapsed_seconds / static_cast<double>(done) *
                                static_cast<double>(std::max<int64_t>(figures.max_steps - figures.step, 0));
  }
  shown_ = figures;
  const bool is_last = figures.step >= figures.max_steps;
  if (drawn_at_ && !is_last && now - *drawn_at_ < options_.least_interval) return;
  drawn_at_ = now;
  erase();
  draw();
}

void ProgressBar::print_above(const std::function<void()>& print) {
  const std::lock_guard lock(mutex_);
  const bool was_drawn = drawn_columns_ > 0;
  erase();
  print();
  if (was_drawn) draw();
}

void ProgressBar::clear() {
  const std::lock_guard lock(mutex_);
  erase();
  shown_.reset();
}

/// A terminal that became narrower has wrapped the line: all its rows go.
void ProgressBar::erase() {
  if (drawn_columns_ == 0) return;
  const int rows = (drawn_columns_ - 1) / std::max(options_.columns(), 1);
  drawn_columns_ = 0;
  options_.write(rows > 0 ? detail::concat("\r\x1b[", rows, "A\x1b[J") : "\r\x1b[K");
}

void ProgressBar::draw() {
  if (!shown_) return;
  const std::string line = progress_line(
      *shown_, {.columns = options_.columns(), .unicode = options_.unicode, .colours = options_.colours});
  options_.write(line);
  drawn_columns_ = columns_of(line);
}

}  // namespace apus::cli
