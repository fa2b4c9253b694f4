#pragma once

#include "apus/base/env.h"
#include "apus/cli/flag_values.h"
#include "apus/launch/local_launcher.h"

namespace apus::cli {

/// What the flags of `apus launch` ask for; NPROC_PER_NODE stands in for --nproc_per_node.
/// Throws:      ConfigError for a number beyond every machine, and for --max_restarts without --restartable.
launch::LaunchOptions launch_options(const FlagValues& values, const Environment& environment);

}  // namespace apus::cli
