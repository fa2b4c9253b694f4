#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "apus/base/error.h"

namespace apus::ops::kernels {

/// Throws CudaError if the launch just made was refused, or an earlier kernel has failed by now.
inline void check_launch(const char* kernel) {
  const cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess) return;
  throw CudaError(std::string("the kernel ") + kernel + " did not start: " + cudaGetErrorString(status) +
                  "; run with CUDA_LAUNCH_BLOCKING=1 to find which kernel failed");
}

}  // namespace apus::ops::kernels
