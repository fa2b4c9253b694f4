#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "apus/base/api.h"

namespace apus::memory {

/// Zeros in host memory for states that lie there between their uses: flat, contiguous, on the CPU.
///
/// With `device` a GPU the memory is pinned, so that copies to and from it run beside the host and the card.
/// It comes straight from the system and goes back there: libtorch's own pinned allocator rounds sizes up to
/// powers of two, up to twice what states need. Its pages are touched by several threads, which spreads them
/// over the sockets of a host.
/// Memory:      elements x element size, to the page.
/// Throws:      OutOfMemory if the system gives no memory or refuses to pin it (RLIMIT_MEMLOCK);
///              NotSupported for a GPU in a build without CUDA.
APUS_API at::Tensor host_zeros(int64_t elements, at::ScalarType dtype, at::Device device);

}  // namespace apus::memory
