#pragma once

#include <cuda_runtime.h>

#include <type_traits>

// How a short kernel comes to the device before the one ahead of it in the stream has ended (programmatic
// dependent launch, from sm_90 on; elsewhere an ordinary launch). Its blocks take the room that the last
// blocks of the one ahead leave, and wait there: of the 3 microseconds between two kernels most are gone.
// A chain of such kernels stays ordered: each ends after its own wait, and so after all before it.
namespace apus::ops::kernels {

/// Lets the stream's next kernel come up, and waits until all that the stream queued before is through and
/// its writes are seen. What launch_early starts calls this before it touches memory, in every block.
__device__ __forceinline__ void wait_for_turn() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Where and how wide a kernel runs.
struct LaunchShape {
  dim3 grid;
  dim3 block;
  cudaStream_t stream = nullptr;
  size_t shared_bytes = 0;
};

/// Starts a kernel that calls wait_for_turn(). See check_launch for what it reports.
template <typename... Parameters>
void launch_early(void (*kernel)(Parameters...), const LaunchShape& shape,
                  std::type_identity_t<Parameters>... parameters) {
  int device = 0, generation = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&generation, cudaDevAttrComputeCapabilityMajor, device);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = shape.stream;
  config.attrs = &early;
  config.numAttrs = generation >= 9 ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, parameters...);
}

}  // namespace apus::ops::kernels
