#pragma once

#include <cstddef>

namespace apus::memory::cuda {

/// Makes memory that `bytes` long pages of zeros hold known to the driver. Throws OutOfMemory.
void pin_memory(void* memory, size_t bytes);

/// The reverse; never throws.
void unpin_memory(void* memory) noexcept;

}  // namespace apus::memory::cuda
