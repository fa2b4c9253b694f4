#pragma once

#include "apus/base/env.h"

namespace apus::cli {

/// Threads for one rank's operators: OMP_NUM_THREADS, else this machine's CPUs shared among its ranks.
/// Throws:      ConfigError if the variable is no positive number.
int compute_threads(const Environment& environment, int local_world_size);

/// Tells libtorch. Only the program does that; a host of the library has settings of its own.
void set_compute_threads(int threads);

}  // namespace apus::cli
