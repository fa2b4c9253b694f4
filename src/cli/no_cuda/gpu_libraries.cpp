#include "cli/loaded_libraries.h"

namespace apus::cli::cuda {

bool is_built() {
  return false;
}

int runtime_version() {
  return 0;
}

std::vector<LoadedLibrary> gpu_libraries() {
  return {};
}

}  // namespace apus::cli::cuda
