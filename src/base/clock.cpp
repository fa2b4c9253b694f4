#include "apus/base/clock.h"

#include <ctime>
#include <thread>

namespace apus {

Clock::~Clock() = default;

Clock::Duration SystemClock::steady_now() const {
  return std::chrono::steady_clock::now().time_since_epoch();
}

Clock::WallTime SystemClock::wall_now() const {
  return std::chrono::system_clock::now();
}

void SystemClock::sleep_for(Duration duration) {
  std::this_thread::sleep_for(duration);
}

ManualClock::ManualClock(WallTime start) : start_(start) {}

Clock::Duration ManualClock::steady_now() const {
  const std::lock_guard lock(mutex_);
  return passed_;
}

Clock::WallTime ManualClock::wall_now() const {
  return start_ + std::chrono::duration_cast<WallTime::duration>(steady_now());
}

void ManualClock::sleep_for(Duration duration) {
  advance(duration);
}

void ManualClock::advance(Duration duration) {
  const std::lock_guard lock(mutex_);
  passed_ += duration;
}

std::string compact_time(Clock::WallTime time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm fields{};
  gmtime_r(&seconds, &fields);
  std::string text(16, '\0');
  text.resize(std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &fields));
  return text;
}

}  // namespace apus
