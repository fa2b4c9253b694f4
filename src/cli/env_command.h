#pragma once

#include "apus/cli/flag_table.h"
#include "cli/training_run.h"

namespace apus::cli {

/// `apus env` takes no flags.
FlagTable env_flags();

/// `apus env`: what this machine offers to a training run, and what stands in its way. Returns the exit code.
int run_env(const Call& call);

}  // namespace apus::cli
