// The GPU that cases run on: waiting, the caching allocator's figures and limit, random numbers.
#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include <algorithm>

#include "apus/base/error.h"
#include "apus/memory/device_memory.h"
#include "ops/cuda/device_gemm_plans.h"
#include "tests/bench/train_bench_device.h"

namespace apus::bench {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

}  // namespace

BenchDevice::BenchDevice(const std::string& kind) : device_(kind) {
  if (device_.is_cpu()) return;
  APUS_CHECK(c10::cuda::device_count() > 0, NotSupported, "device=", kind, ": there is no CUDA device here");
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  device_ = c10::Device(c10::DeviceType::CUDA, c10::cuda::current_device());
  allocator::emptyCache();  // of an earlier case
}

std::string BenchDevice::name() const {
  if (device_.is_cpu()) return "CPU";
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device_.index()));
  return properties.name;
}

void BenchDevice::wait() const {
  if (device_.is_cuda()) c10::cuda::device_synchronize();
}

void BenchDevice::seed(uint64_t seed) const {
  at::manual_seed(seed);
}

void BenchDevice::reset_memory_peaks() const {
  if (device_.is_cuda()) allocator::resetPeakStats(device_.index());
}

MemoryPeaks BenchDevice::memory_peaks() const {
  if (device_.is_cpu()) return {};
  const auto stats = allocator::getDeviceStats(device_.index());
  return {stats.allocated_bytes[kAll].peak, stats.reserved_bytes[kAll].peak};
}

int64_t BenchDevice::allocated() const {
  return device_.is_cpu() ? 0 : allocator::getDeviceStats(device_.index()).allocated_bytes[kAll].current;
}

int64_t BenchDevice::reserved() const {
  return device_.is_cpu() ? 0 : allocator::getDeviceStats(device_.index()).reserved_bytes[kAll].current;
}

int64_t BenchDevice::driver_allocations() const {
  return device_.is_cpu() ? 0 : allocator::getDeviceStats(device_.index()).num_device_alloc;
}

void BenchDevice::limit_memory(double gib) const {
  if (device_.is_cpu() || gib == 0) return;
  memory::use_expandable_segments();  // so that the cap is met by what is allocated
  size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  const double bytes = gib * static_cast<double>(1 << 30);
  allocator::setMemoryFraction(std::min(1.0, bytes / static_cast<double>(total)), device_.index());
}

void BenchDevice::choose_gemms(const std::string& how) const {
  ops::GemmPlans::Limits limits;
  if (how == "short") limits.finalists = 1;
  if (how == "first") limits.finalists = 0;
  ops::cuda::device_gemm_plans().restart(limits);
}

}  // namespace apus::bench
