#include "cli/compute_threads.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "apus/base/error.h"
#include "apus/launch/cpu_share.h"

namespace apus::cli {

int compute_threads(const Environment& environment, int local_world_size) {
  const std::optional<int64_t> asked = environment.get_int("OMP_NUM_THREADS");
  if (!asked) return launch::threads_per_rank(launch::usable_cpus(), local_world_size);
  APUS_CHECK(*asked >= 1 && *asked <= 4096, ConfigError, "OMP_NUM_THREADS=", *asked, ": expected 1 or more");
  return static_cast<int>(*asked);
}

void set_compute_threads(int threads) {
  at::set_num_threads(threads);
}

}  // namespace apus::cli
