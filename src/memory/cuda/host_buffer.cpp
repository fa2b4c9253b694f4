#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>

#include "apus/base/error.h"
#include "memory/host_buffer_cuda.h"

namespace apus::memory::cuda {

void pin_memory(void* memory, size_t bytes) {
  const cudaError_t answer = cudaHostRegister(memory, bytes, cudaHostRegisterPortable);
  if (answer == cudaSuccess) return;
  (void)cudaGetLastError();  // the next call must not find it
  throw OutOfMemory(detail::concat(
      bytes, " bytes of host memory cannot be pinned: ", cudaGetErrorString(answer),
      "; raise the limit of locked memory (ulimit -l, --ulimit memlock=-1 of a container) or offload less"));
}

void unpin_memory(void* memory) noexcept {
  if (cudaHostUnregister(memory) != cudaSuccess) (void)cudaGetLastError();
}

}  // namespace apus::memory::cuda
