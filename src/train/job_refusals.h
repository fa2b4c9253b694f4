#pragma once

#include "apus/train/job_options.h"

namespace apus::train {

/// Refuses options whose mechanism is not built yet, unless they say what happens anyway.
/// Throws:      NotSupported naming the flag, and what to do instead.
void refuse_unbuilt(const JobOptions& options);

}  // namespace apus::train
