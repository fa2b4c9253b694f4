#include "cli/run_console.h"

#include <string>

#include "cli/console.h"
#include "cli/signals.h"
#include "cli/terminal.h"

namespace apus::cli {

namespace {

OpenLine open_line_of(int rank, const Environment& environment) {
  return rank != 0 && progress_wanted(environment) ? OpenLine::kCleared : OpenLine::kNone;
}

}  // namespace

RunConsole::RunConsole(int rank, const Environment& environment, const Clock& clock)
    : lines_(make_rank_console(rank, open_line_of(rank, environment))) {
  if (rank != 0 || !progress_wanted(environment)) return;
  bar_ = std::make_unique<ProgressBar>(ProgressBarOptions{.write = write_terminal,
                                                          .columns = [] { return terminal_columns(); },
                                                          .clock = &clock,
                                                          .unicode = speaks_utf8(environment),
                                                          .colours = colours_wanted(environment)});
}

RunConsole::~RunConsole() = default;

void RunConsole::log(LogLevel level, std::string_view message) {
  if (!bar_) return lines_->log(level, message);
  bar_->print_above([&] { lines_->log(level, message); });
}

void RunConsole::progress(const ProgressFigures& figures) {
  if (!bar_) return;
  note_open_line(true);
  bar_->update(figures);
}

void RunConsole::end_progress() {
  if (!bar_) return;
  bar_->clear();
  note_open_line(false);
}

}  // namespace apus::cli
