#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace apus::comm {

/// Pauses between polls of a store until a deadline: an eighth of the time waited so far, within [0.1, 20]
/// ms, so that short waits end fast and a thousand waiting ranks do not drown the server.
class Backoff {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Backoff(std::chrono::milliseconds timeout) : start_(Clock::now()), deadline_(start_ + timeout) {}

  /// Sleeps; false, at once, if the deadline has passed.
  bool pause() const {
    const Clock::time_point now = Clock::now();
    if (now >= deadline_) return false;
    const auto eighth = (now - start_) / 8;
    std::this_thread::sleep_for(
        std::clamp<Clock::duration>(eighth, std::chrono::microseconds(100), std::chrono::milliseconds(20)));
    return true;
  }

 private:
  Clock::time_point start_;
  Clock::time_point deadline_;
};

}  // namespace apus::comm
