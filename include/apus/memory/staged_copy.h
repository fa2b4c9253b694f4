#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "apus/base/api.h"

namespace apus::memory {

/// Bytes of the pieces in which staged copies pass through pinned memory.
inline constexpr int64_t kStagingBytes = int64_t{64} << 20;

/// target <- source, both contiguous and of one size, whatever their devices and dtypes.
///
/// From the CPU to a GPU in pieces through pinned memory: pageable memory, such as a mapped file, is read
/// once, piece by piece, while the piece before travels; another dtype is converted on the GPU. Other pairs:
/// copy_. Stream:      GPU: the current stream. The host waits for the last pieces only where staging memory
/// is taken
///              again, so the source may be released when it returns.
/// Memory:      two or three pinned pieces, which libtorch's host allocator keeps for later.
/// Throws:      ShapeError if the numbers of elements differ or one is not contiguous.
APUS_API void staged_copy(const at::Tensor& target, const at::Tensor& source);

/// The tensor on `device` in `dtype`: itself if it is that already, else a copy made by staged_copy.
APUS_API at::Tensor staged_to(const at::Tensor& source, at::Device device, at::ScalarType dtype);

}  // namespace apus::memory
