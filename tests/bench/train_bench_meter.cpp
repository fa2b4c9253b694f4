#include "tests/bench/train_bench_meter.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>

namespace apus::bench {
namespace {

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

constexpr int kSmClock = 1;   // NVML_CLOCK_SM
constexpr int kOfTheGpu = 0;  // NVML_TEMPERATURE_GPU

}  // namespace

GpuMeter::GpuMeter() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW)) {
  if (!library_) return;
  int (*init)() = nullptr;
  int (*handle)(unsigned, void**) = nullptr;
  find(library_, "nvmlInit_v2", init);
  find(library_, "nvmlDeviceGetHandleByIndex_v2", handle);
  find(library_, "nvmlDeviceGetPowerUsage", power_);
  find(library_, "nvmlDeviceGetClockInfo", clock_);
  find(library_, "nvmlDeviceGetTemperature", temperature_);
  const bool has_all = init && handle && power_ && clock_ && temperature_;
  if (!has_all || init() != 0 || handle(0, &gpu_) != 0) gpu_ = nullptr;
}

GpuMeter::~GpuMeter() {
  stop();
}

bool GpuMeter::read(Sample& sample) const {
  unsigned milliwatts = 0, mhz = 0, celsius = 0;
  if (!gpu_ || power_(gpu_, &milliwatts) != 0 || clock_(gpu_, kSmClock, &mhz) != 0) return false;
  temperature_(gpu_, kOfTheGpu, &celsius);
  sample = {milliwatts / 1e3, static_cast<double>(mhz), static_cast<double>(celsius)};
  return true;
}

void GpuMeter::sample_until_stopped() {
  while (!stops_.load()) {
    Sample sample{};
    if (read(sample)) {
      const std::lock_guard lock(mutex_);
      samples_.push_back(sample);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

void GpuMeter::start() {
  stop();
  samples_.clear();
  stops_.store(false);
  thread_ = std::thread([this] { sample_until_stopped(); });
}

MeterReading GpuMeter::stop() {
  stops_.store(true);
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  MeterReading reading{.samples = static_cast<int>(samples_.size())};
  if (samples_.empty()) return reading;
  reading.lowest_mhz = samples_.front().mhz;
  for (const Sample& sample : samples_) {
    reading.watts += sample.watts / static_cast<double>(samples_.size());
    reading.mhz += sample.mhz / static_cast<double>(samples_.size());
    reading.lowest_mhz = std::min(reading.lowest_mhz, sample.mhz);
    reading.celsius = std::max(reading.celsius, sample.celsius);
  }
  return reading;
}

}  // namespace apus::bench
