#pragma once

#include <string>
#include <vector>

#include "apus/base/device.h"

namespace apus::cli {

/// A library that the program was linked with, as it was found when the program started.
struct LoadedLibrary {
  std::string name = {};
  /// Version of the headers that this was compiled with, e.g. "9.19.0".
  std::string built = {};
  /// Version of the file; empty if it does not say.
  std::string loaded = {};
  /// The file; empty if the loader does not say.
  std::string path = {};
};

/// libtorch, and what a build with CUDA stands on beside it: CUDA's runtime, cuDNN, NCCL. No GPU is touched.
std::vector<LoadedLibrary> loaded_libraries();

/// Why a library cannot serve: another major version than the headers', or an older minor one, as a wrong
/// LD_LIBRARY_PATH brings. Names file and remedy; empty if all serve.
std::string library_fault(const std::vector<LoadedLibrary>& libraries);

/// What the CUDA runtime that is loaded needs of the driver; in a build without CUDA, what libtorch's pinned
/// wheel would need.
DeviceRequirement device_requirement();
/// The same of a runtime of that version (1000 x major + 10 x minor; 0 = the pinned wheel's). Drivers serve
/// every runtime of their major version.
DeviceRequirement requirement_of_runtime(int version);

/// The file that the loader took a function from; empty if nobody has it.
std::string file_of_symbol(const char* name);

namespace cuda {

/// Whether this program was built with CUDA, and so can train on GPUs.
bool is_built();
/// CUDA's runtime, cuDNN and NCCL; none in a build without CUDA.
std::vector<LoadedLibrary> gpu_libraries();
/// Of the loaded runtime, as requirement_of_runtime takes it; 0 without CUDA.
int runtime_version();

}  // namespace cuda
}  // namespace apus::cli
