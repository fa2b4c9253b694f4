#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include "train/job_device.h"

namespace apus::train {

int cuda::gpu_count() {
  return c10::cuda::device_count();
}

std::string cuda::gpu_name(int index) {
  cudaDeviceProp properties = {};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  return properties.name;
}

}  // namespace apus::train
