#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "apus/base/memory_usage.h"

namespace apus::train {

/// Samples the resident memory in the background as long as it lives, so that a peak inside a backward is seen.
class MemorySampler final {
 public:
  explicit MemorySampler(ResidentPeak& peak);
  ~MemorySampler();
  MemorySampler(const MemorySampler&) = delete;
  MemorySampler& operator=(const MemorySampler&) = delete;

 private:
  void run();

  ResidentPeak& peak_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace apus::train
