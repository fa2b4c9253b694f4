#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace apus::testing {

/// Counts the bytes that tensors of this thread (a rank, say) allocate and free on the CPU while it lives.
/// Mapped files and other threads' tensors do not count; freeing may happen on any thread.
class MemoryMeter final {
 public:
  MemoryMeter()
      : counter_(std::make_shared<Counter>()), guard_(c10::DebugInfoKind::PROFILER_STATE, counter_) {}

  /// Allocated and not freed since the meter was made.
  int64_t live_bytes() const { return counter_->live; }
  /// The largest live_bytes since the meter was made or its peak was reset.
  int64_t peak_bytes() const { return counter_->peak; }
  /// The peak starts again from what is live.
  void reset_peak() { counter_->peak = counter_->live.load(); }

 private:
  struct Counter final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
      const int64_t now = live += bytes;
      int64_t largest = peak;
      while (now > largest && !peak.compare_exchange_weak(largest, now)) {
      }
    }
    bool memoryProfilingEnabled() const override { return true; }
    std::atomic<int64_t> live = 0;
    std::atomic<int64_t> peak = 0;
  };

  std::shared_ptr<Counter> counter_;
  c10::DebugInfoGuard guard_;
};

}  // namespace apus::testing
