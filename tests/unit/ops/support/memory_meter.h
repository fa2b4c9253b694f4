#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <memory>

namespace apus::testing {

/// Counts the bytes that tensors of this thread allocate and free on the CPU while it lives.
class MemoryMeter final {
 public:
  MemoryMeter()
      : counter_(std::make_shared<Counter>()), guard_(c10::DebugInfoKind::PROFILER_STATE, counter_) {}

  /// Allocated and not freed since the meter was made.
  int64_t live_bytes() const { return counter_->live; }
  /// The largest live_bytes so far.
  int64_t peak_bytes() const { return counter_->peak; }

 private:
  struct Counter final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void* ptr, int64_t size, size_t total_allocated, size_t total_reserved,
                           c10::Device device) override;
    bool memoryProfilingEnabled() const override { return true; }
    int64_t live = 0;
    int64_t peak = 0;
  };

  std::shared_ptr<Counter> counter_;
  c10::DebugInfoGuard guard_;
};

}  // namespace apus::testing
