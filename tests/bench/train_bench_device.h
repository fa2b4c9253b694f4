#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace apus::bench {

/// What the caching allocator has seen since reset_memory_peaks().
struct MemoryPeaks {
  int64_t allocated = 0;
  int64_t reserved = 0;
};

/// The device that cases run on. On the CPU, and in a build without CUDA, memory is unknown (zeros), and
/// waiting does nothing.
class BenchDevice {
 public:
  /// Throws:  NotSupported for cuda where there is none.
  explicit BenchDevice(const std::string& kind);
  c10::Device device() const { return device_; }
  std::string name() const;
  void wait() const;
  void seed(uint64_t seed) const;
  void reset_memory_peaks() const;
  MemoryPeaks memory_peaks() const;
  /// Live tensors now.
  int64_t allocated() const;
  /// Taken from the driver now.
  int64_t reserved() const;
  /// Calls of cudaMalloc and the like so far: none should come after warm-up.
  int64_t driver_allocations() const;
  /// Lets the caching allocator take no more; 0 = all of the card.
  void limit_memory(double gib) const;
  /// Forgets how products are computed, and chooses anew by TrainCase::gemm.
  void choose_gemms(const std::string& how) const;

 private:
  c10::Device device_;
};

/// A kernel, copy or fill that ran.
struct DeviceActivity {
  enum class Kind { kKernel, kCopy, kFill };
  Kind kind = Kind::kKernel;
  std::string name;
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
};

/// Records everything that the GPU runs, through CUPTI (opened when first needed).
class ActivityRecorder {
 public:
  ActivityRecorder();
  ~ActivityRecorder();
  ActivityRecorder(const ActivityRecorder&) = delete;
  ActivityRecorder& operator=(const ActivityRecorder&) = delete;

  /// Throws:  Error if CUPTI is not there or refuses.
  void start();
  /// The device has been waited for.
  std::vector<DeviceActivity> stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace apus::bench
