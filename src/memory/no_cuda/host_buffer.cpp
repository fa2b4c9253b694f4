#include "apus/base/error.h"
#include "memory/host_buffer_cuda.h"

namespace apus::memory::cuda {

void pin_memory(void*, size_t) {
  throw NotSupported(
      "host memory cannot be pinned for a GPU: this apus was built without CUDA; configure with "
      "-DAPUS_CUDA=ON");
}

void unpin_memory(void*) noexcept {}

}  // namespace apus::memory::cuda
