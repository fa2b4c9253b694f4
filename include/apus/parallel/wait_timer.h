#pragma once

#include <chrono>

#include "apus/base/api.h"
#include "apus/comm/work.h"

namespace apus::parallel {

/// Sums the time that the host spends waiting for collectives: the comm_wait_ms of the log.
class APUS_API WaitTimer final {
 public:
  /// Waits for the operation. Throws what its wait() throws.
  void wait(comm::Work& work) {
    const auto start = std::chrono::steady_clock::now();
    work.wait();
    total_ += std::chrono::steady_clock::now() - start;
  }

  double milliseconds() const { return std::chrono::duration<double, std::milli>(total_).count(); }

 private:
  std::chrono::steady_clock::duration total_{0};
};

}  // namespace apus::parallel
