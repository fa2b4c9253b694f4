#include "cli/growing_segments.h"

namespace apus::cli {

bool grow_segments(const Environment& environment, int gpu) {
  const bool is_set = environment.has("PYTORCH_ALLOC_CONF") || environment.has("PYTORCH_CUDA_ALLOC_CONF");
  return !is_set && cuda::grow_segments(gpu);
}

}  // namespace apus::cli
