#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "ops/kernels/launch_check.h"

namespace apus::ops::kernels {

/// Blocks of a kernel that the current device holds at once.
/// Throws:      CudaError if the runtime refuses the kernel.
template <typename Kernel>
int64_t resident_blocks(Kernel kernel, int threads) {
  int device = 0, processors = 0, resident = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, 0);
  check_launch("(its resources)");
  return std::max<int64_t>(1, int64_t{processors} * resident);
}

/// Walkers over `work` pieces: `most`, or just so many fewer that all have equally many pieces and none is
/// left to finish alone. At least one.
inline int64_t even_walkers(int64_t most, int64_t work) {
  const int64_t turns = std::max<int64_t>(1, (work + most - 1) / most);
  return std::max<int64_t>(1, (work + turns - 1) / turns);
}

/// Blocks that stay resident and share the work evenly.
template <typename Kernel>
int64_t persistent_grid(Kernel kernel, int threads, int64_t work) {
  return even_walkers(resident_blocks(kernel, threads), work);
}

}  // namespace apus::ops::kernels
