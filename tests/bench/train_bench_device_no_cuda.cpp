// The device of a build without CUDA: the CPU.
#include "apus/base/error.h"
#include "tests/bench/train_bench_device.h"

namespace apus::bench {

BenchDevice::BenchDevice(const std::string& kind) : device_(kind) {
  APUS_CHECK(device_.is_cpu(), NotSupported, "device=", kind,
             ": this benchmark was built without CUDA; configure with -DAPUS_CUDA=ON, or give device=cpu");
}

std::string BenchDevice::name() const {
  return "CPU";
}
void BenchDevice::wait() const {}
void BenchDevice::seed(uint64_t) const {}
void BenchDevice::reset_memory_peaks() const {}
MemoryPeaks BenchDevice::memory_peaks() const {
  return {};
}
int64_t BenchDevice::allocated() const {
  return 0;
}
int64_t BenchDevice::reserved() const {
  return 0;
}
int64_t BenchDevice::driver_allocations() const {
  return 0;
}
void BenchDevice::limit_memory(double) const {}
void BenchDevice::choose_gemms(const std::string&) const {}

struct ActivityRecorder::State {};
ActivityRecorder::ActivityRecorder() = default;
ActivityRecorder::~ActivityRecorder() = default;
void ActivityRecorder::start() {
  throw NotSupported("profile=1 needs a GPU: this benchmark was built without CUDA");
}
std::vector<DeviceActivity> ActivityRecorder::stop() {
  return {};
}

}  // namespace apus::bench
