#include "apus/launch/cpu_share.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace apus::launch {

int usable_cpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) == 0) return std::max(1, CPU_COUNT(&allowed));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));  // more CPUs than the mask holds
}

int threads_per_rank(int cpus, int ranks) {
  return std::max(1, cpus / std::max(1, ranks));
}

}  // namespace apus::launch
