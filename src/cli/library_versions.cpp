#include <torch/headeronly/version.h>

#include "cli/env_facts.h"

// A build with CUDA says so (src/CMakeLists.txt): headers that lie about on the machine are no part of
// others.
#ifdef APUS_WITH_CUDA
#include <cudnn_version.h>
#include <nccl.h>

#include "apus/base/error.h"
#endif

namespace apus::cli {

LibraryVersions library_versions() {
  LibraryVersions versions{.libtorch = TORCH_VERSION};
#ifdef APUS_WITH_CUDA
  versions.cudnn = detail::concat(CUDNN_MAJOR, ".", CUDNN_MINOR, ".", CUDNN_PATCHLEVEL);
  versions.nccl = detail::concat(NCCL_MAJOR, ".", NCCL_MINOR, ".", NCCL_PATCH);
#endif
  return versions;
}

}  // namespace apus::cli
