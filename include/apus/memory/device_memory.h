#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "apus/base/api.h"

namespace apus::memory {

/// What this process holds of a GPU's memory through libtorch's allocator, and what the card says.
struct APUS_API DeviceMemory {
  int64_t allocated_bytes = 0;       ///< in tensors
  int64_t peak_allocated_bytes = 0;  ///< the most at a time since the last reset
  int64_t reserved_bytes = 0;        ///< taken from the driver: tensors, and memory kept for later ones
  int64_t peak_reserved_bytes = 0;
  int64_t free_bytes = 0;          ///< of the card, for any process
  int64_t total_bytes = 0;         ///< of the card
  int64_t driver_allocations = 0;  ///< calls of cudaMalloc so far: they stand still after warm-up
};

/// Reads the allocator's counters; the host waits for nothing.
/// Throws:      NotSupported without CUDA or for another device.
APUS_API DeviceMemory device_memory(at::Device device);

/// Lets the peaks start anew from what is held now.
/// Throws:      as device_memory.
APUS_API void reset_peak_memory(at::Device device);

/// Caps what this process may reserve on the card; 0 lifts the cap. Beyond it an allocation fails with
/// libtorch's out-of-memory error, as on a smaller card. What lies outside of the allocator (CUDA's context,
/// NCCL's buffers) does not count. Throws:      as device_memory; ConfigError if bytes is negative or more
/// than the card has.
APUS_API void limit_device_memory(at::Device device, int64_t bytes);

/// Gives memory that no tensor uses back to the driver. The host waits for the device.
/// Throws:      as device_memory.
APUS_API void release_cached_memory(at::Device device);

/// Lets the allocator grow its segments in place (libtorch's expandable_segments), so that memory freed in
/// one size serves any other and what is reserved stays near what is allocated. For the whole process, and
/// for segments made from then on: call it before the first allocation. A choice in PYTORCH_CUDA_ALLOC_CONF
/// stands. Throws:      NotSupported without CUDA.
APUS_API void use_expandable_segments();

}  // namespace apus::memory
