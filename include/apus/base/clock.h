#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "apus/base/api.h"

namespace apus {

/// Time as an argument: deadlines, log lines and run directories ask this, so that tests need not wait.
/// Implementations are thread-safe.
class APUS_API Clock {
 public:
  /// A span of time.
  using Duration = std::chrono::nanoseconds;
  /// A moment of the calendar.
  using WallTime = std::chrono::system_clock::time_point;

  virtual ~Clock();

  /// Never goes back; only differences mean something.
  virtual Duration steady_now() const = 0;
  /// Calendar time.
  virtual WallTime wall_now() const = 0;
  /// Returns once `duration` has passed on this clock.
  virtual void sleep_for(Duration duration) = 0;
};

/// The machine's clocks: the monotonic one for spans, the real-time one for the calendar.
class APUS_API SystemClock final : public Clock {
 public:
  Duration steady_now() const override;
  WallTime wall_now() const override;
  void sleep_for(Duration duration) override;
};

/// A clock that only moves when told to; sleeping advances it at once.
class APUS_API ManualClock final : public Clock {
 public:
  /// Starts at steady time 0 and the given calendar time.
  /// A test of a deadline of half an hour then takes no time.
  explicit ManualClock(WallTime start = {});

  Duration steady_now() const override;
  WallTime wall_now() const override;
  /// The same as `advance`.
  void sleep_for(Duration duration) override;
  /// Moves both times forward.
  void advance(Duration duration);

 private:
  mutable std::mutex mutex_;
  WallTime start_;
  Duration passed_{0};
};

/// Seconds between two readings of `steady_now`.
inline double seconds_between(Clock::Duration from, Clock::Duration to) {
  return std::chrono::duration<double>(to - from).count();
}

/// Calendar time as "20260131-235959" in UTC, for names of run directories.
APUS_API std::string compact_time(Clock::WallTime time);

}  // namespace apus
