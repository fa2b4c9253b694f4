#pragma once

#include <atomic>

namespace apus::cli {

/// What SIGINT, SIGTERM and SIGHUP have said. Handlers can reach nothing but globals, so there is one for the
/// program.
struct SignalFlags {
  std::atomic<int> signal = 0;     ///< the first one that came; 0: none
  std::atomic<bool> stop = false;  ///< one came
};

/// Says whether an unfinished line (a progress bar) stands on the terminal at standard output: a signal that
/// ends the process at once then clears it, so that the shell's prompt does not follow it.
void note_open_line(bool is_open);

/// Catches SIGINT, SIGTERM and (unless it is ignored) SIGHUP from now on: the first one is noted, a second one
/// does what it does by default.
const SignalFlags& watch_signals();

}  // namespace apus::cli
