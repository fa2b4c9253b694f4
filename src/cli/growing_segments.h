#pragma once

#include "apus/base/env.h"

namespace apus::cli {

/// Lets libtorch's allocator for GPUs grow its segments instead of adding new ones, so that no memory is lost
/// between tensors (a tenth of a large job's was), unless PYTORCH_ALLOC_CONF or PYTORCH_CUDA_ALLOC_CONF is
/// set or the machine's driver cannot. Only the program does that; a host of the library has settings of its
/// own. Returns whether they grow now.
bool grow_segments(const Environment& environment, int gpu);

namespace cuda {

/// The same without a look at variables: tries with one allocation.
bool grow_segments(int gpu);

}  // namespace cuda
}  // namespace apus::cli
