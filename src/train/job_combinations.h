#pragma once

#include "apus/train/job_options.h"

namespace apus::train {

/// What must be given, and what excludes each other.
/// Throws:      ConfigError naming the flags.
void check_combinations(const JobOptions& options);

/// What belongs to the job's task, train_type and strategy: a flag that would have no effect there is
/// refused, where it is known to be given, and the settings that other layers make of the flags are tried.
/// Throws:      ConfigError, NotSupported naming the flag and what to do.
void check_task_rules(const JobOptions& options);

}  // namespace apus::train
