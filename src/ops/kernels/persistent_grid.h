#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "ops/kernels/launch_check.h"

namespace apus::ops::kernels {

/// Blocks that are resident at once on the current device, at most `work`, at least one: each then takes its
/// share of the work in one go, without a last wave that fills the device half.
/// Throws:      CudaError if the runtime refuses the kernel.
template <typename Kernel>
int64_t persistent_grid(Kernel kernel, int threads, int64_t work) {
  int device = 0, processors = 0, resident = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, 0);
  check_launch("(its resources)");
  return std::max<int64_t>(1, std::min<int64_t>(work, int64_t{processors} * std::max(1, resident)));
}

}  // namespace apus::ops::kernels
