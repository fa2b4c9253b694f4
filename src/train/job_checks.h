#pragma once

#include "apus/train/job_options.h"

namespace apus::train {

/// Checks every value, and what values say together, as far as no file is needed.
/// Throws:      ConfigError naming the flag, what came and what is allowed.
void check_job(const JobOptions& options);

}  // namespace apus::train
