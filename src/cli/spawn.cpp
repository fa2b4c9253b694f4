#include "cli/spawn.h"

#include "apus/base/error.h"
#include "cli/console.h"
#include "cli/signals.h"
#include "cli/terminal.h"

namespace apus::cli {

int spawn_ranks(launch::LaunchOptions options) {
  const OpenLine bar = progress_wanted(options.environment) ? OpenLine::kCleared : OpenLine::kNone;
  const std::shared_ptr<Logger> console = make_rank_console(0, bar);
  SystemClock clock;
  options.program = std::filesystem::read_symlink("/proc/self/exe");
  options.signal = &watch_signals().signal;
  const launch::LaunchResult result = launch::LocalLauncher(std::move(options), clock, console).run();
  if (result.ended_unheard) console->info("Stopped before the first step");
  if (!result.first_cause.empty()) {
    const std::string attempts =
        result.attempts > 1 ? detail::concat(" (attempt ", result.attempts, ")") : "";
    console->error(result.first_cause + attempts);
  }
  return result.exit_code;
}

}  // namespace apus::cli
