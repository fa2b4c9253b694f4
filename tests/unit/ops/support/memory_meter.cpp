#include "tests/unit/ops/support/memory_meter.h"

#include <algorithm>

namespace apus::testing {

void MemoryMeter::Counter::reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device device) {
  if (!device.is_cpu()) return;
  live += size;
  peak = std::max(peak, live);
}

}  // namespace apus::testing
