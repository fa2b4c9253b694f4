#pragma once

#include "apus/base/api.h"

namespace apus::launch {

/// CPUs that this process may use: its affinity mask, not the machine's number.
APUS_API int usable_cpus();

/// Threads for each of `ranks` processes that share `cpus`: at least 1.
APUS_API int threads_per_rank(int cpus, int ranks);

}  // namespace apus::launch
