#include "train/memory_sampler.h"

#include <chrono>

namespace apus::train {
namespace {

/// A sample costs about 20 microseconds; a step of a real job takes seconds.
constexpr std::chrono::milliseconds kInterval{20};

}  // namespace

MemorySampler::MemorySampler(ResidentPeak& peak) : peak_(peak), thread_([this] { run(); }) {}

MemorySampler::~MemorySampler() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void MemorySampler::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    peak_.sample();
    wake_.wait_for(lock, kInterval, [this] { return stop_; });
  }
}

}  // namespace apus::train
