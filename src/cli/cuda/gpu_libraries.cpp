#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <nccl.h>

#include "apus/base/error.h"
#include "cli/loaded_libraries.h"

namespace apus::cli::cuda {
namespace {

/// "13.0" of 13000.
std::string cuda_text(int version) {
  return version == 0 ? "" : detail::concat(version / 1000, ".", version % 1000 / 10);
}

/// Both write 10000 x major + 100 x minor + patch.
std::string packed_text(size_t version) {
  return version == 0 ? "" : detail::concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

std::string nccl_text() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? packed_text(static_cast<size_t>(version)) : "";
}

}  // namespace

bool is_built() {
  return true;
}

int runtime_version() {
  int version = 0;
  return cudaRuntimeGetVersion(&version) == cudaSuccess ? version : 0;
}

std::vector<LoadedLibrary> gpu_libraries() {
  return {{.name = "CUDA runtime",
           .built = cuda_text(CUDART_VERSION),
           .loaded = cuda_text(runtime_version()),
           .path = file_of_symbol("cudaRuntimeGetVersion")},
          {.name = "cuDNN",
           .built = detail::concat(CUDNN_MAJOR, ".", CUDNN_MINOR, ".", CUDNN_PATCHLEVEL),
           .loaded = packed_text(cudnnGetVersion()),
           .path = file_of_symbol("cudnnGetVersion")},
          {.name = "NCCL",
           .built = detail::concat(NCCL_MAJOR, ".", NCCL_MINOR, ".", NCCL_PATCH),
           .loaded = nccl_text(),
           .path = file_of_symbol("ncclGetVersion")}};
}

}  // namespace apus::cli::cuda
