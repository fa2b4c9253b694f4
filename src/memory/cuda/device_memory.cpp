#include "apus/memory/device_memory.h"

#include <ATen/Context.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <string>

#include "apus/base/error.h"

namespace apus::memory {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

/// The card's ordinal. Allocator and context exist from here on.
c10::DeviceIndex ordinal_of(at::Device device) {
  APUS_CHECK(device.is_cuda(), NotSupported, "memory is counted on CUDA devices, not on ", device.str());
  at::globalContext().lazyInitDevice(at::kCUDA);
  return device.has_index() ? device.index() : c10::cuda::current_device();
}

struct CardBytes {
  size_t free = 0;
  size_t total = 0;
};

CardBytes card_bytes(c10::DeviceIndex index) {
  const c10::cuda::CUDAGuard guard(index);
  CardBytes bytes;
  C10_CUDA_CHECK(cudaMemGetInfo(&bytes.free, &bytes.total));
  return bytes;
}

}  // namespace

DeviceMemory device_memory(at::Device device) {
  const c10::DeviceIndex index = ordinal_of(device);
  const auto stats = allocator::getDeviceStats(index);
  constexpr size_t kAll = 0;  // the aggregate of small and large pools
  const CardBytes card = card_bytes(index);
  return {.allocated_bytes = stats.allocated_bytes[kAll].current,
          .peak_allocated_bytes = stats.allocated_bytes[kAll].peak,
          .reserved_bytes = stats.reserved_bytes[kAll].current,
          .peak_reserved_bytes = stats.reserved_bytes[kAll].peak,
          .free_bytes = static_cast<int64_t>(card.free),
          .total_bytes = static_cast<int64_t>(card.total),
          .driver_allocations = stats.num_device_alloc};
}

void reset_peak_memory(at::Device device) {
  allocator::resetPeakStats(ordinal_of(device));
}

void limit_device_memory(at::Device device, int64_t bytes) {
  const c10::DeviceIndex index = ordinal_of(device);
  const auto total = static_cast<int64_t>(card_bytes(index).total);
  APUS_CHECK(bytes >= 0 && bytes <= total, ConfigError, "a limit of ", bytes, " bytes does not fit ",
             device.str(), ", which has ", total);
  allocator::setMemoryFraction(bytes == 0 ? 1.0 : static_cast<double>(bytes) / static_cast<double>(total),
                               index);
}

void release_cached_memory(at::Device device) {
  const c10::cuda::CUDAGuard guard(ordinal_of(device));
  allocator::emptyCache();
}

void use_expandable_segments() {
  const std::string now = c10::CachingAllocator::getAllocatorSettings();
  if (now.find("expandable_segments") != std::string::npos) return;
  c10::CachingAllocator::setAllocatorSettings(now + (now.empty() ? "" : ",") + "expandable_segments:True");
}

}  // namespace apus::memory
