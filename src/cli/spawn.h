#pragma once

#include "apus/launch/local_launcher.h"

namespace apus::cli {

/// Starts this very program once a rank, passes signals on, and prints the first cause last.
/// `options.program` and `options.signal` are filled in here. Returns the exit code.
int spawn_ranks(launch::LaunchOptions options);

}  // namespace apus::cli
