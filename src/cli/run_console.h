#pragma once

#include <memory>
#include <string_view>

#include "apus/base/clock.h"
#include "apus/base/env.h"
#include "apus/base/log.h"
#include "cli/progress_bar.h"

namespace apus::cli {

/// What a rank says while it trains: the lines of make_rank_console(), and on rank 0, where standard output
/// is a terminal that can move its cursor, a progress bar below them. In a pipe or a file there are the lines
/// alone.
class RunConsole final : public Logger {
 public:
  /// `clock` outlives the console.
  RunConsole(int rank, const Environment& environment, const Clock& clock);
  ~RunConsole() override;

  /// Above the bar.
  void log(LogLevel level, std::string_view message) override;
  /// After a step. Without a bar nothing is shown: log lines say it.
  void progress(const ProgressFigures& figures);
  /// Takes the bar away: what is printed from now on is the end.
  void end_progress();

 private:
  std::shared_ptr<Logger> lines_;
  std::unique_ptr<ProgressBar> bar_;
};

}  // namespace apus::cli
