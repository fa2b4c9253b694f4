#pragma once

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace apus::bench {

/// Means over the time that a GpuMeter ran; zeros where NVML is not there.
struct MeterReading {
  double watts = 0;
  double mhz = 0;
  double lowest_mhz = 0;
  double celsius = 0;  ///< the highest
  int samples = 0;
};

/// Samples power, clock and temperature of GPU 0 ten times a second, through NVML, from start() to stop().
class GpuMeter {
 public:
  GpuMeter();
  ~GpuMeter();
  GpuMeter(const GpuMeter&) = delete;
  GpuMeter& operator=(const GpuMeter&) = delete;

  void start();
  MeterReading stop();

 private:
  struct Sample {
    double watts, mhz, celsius;
  };
  bool read(Sample& sample) const;
  void sample_until_stopped();

  void* library_ = nullptr;
  void* gpu_ = nullptr;
  int (*power_)(void*, unsigned*) = nullptr;
  int (*clock_)(void*, int, unsigned*) = nullptr;
  int (*temperature_)(void*, int, unsigned*) = nullptr;
  std::atomic<bool> stops_ = false;
  std::mutex mutex_;
  std::vector<Sample> samples_;
  std::thread thread_;
};

}  // namespace apus::bench
