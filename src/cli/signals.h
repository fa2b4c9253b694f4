#pragma once

#include <atomic>

namespace apus::cli {

/// What SIGINT and SIGTERM have said. Handlers can reach nothing but globals, so there is one for the
/// program.
struct SignalFlags {
  std::atomic<int> signal = 0;     ///< the first one that came; 0: none
  std::atomic<bool> stop = false;  ///< one came
};

/// Catches SIGINT and SIGTERM from now on: the first one is noted, a second one does what it does by default.
const SignalFlags& watch_signals();

}  // namespace apus::cli
