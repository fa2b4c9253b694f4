#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>

#include "apus/base/api.h"

/// cuBLASLt proposes several algorithms for a matrix product, and its favourite is up to a fifth slower than
/// the best. A large product that comes back for the third time is therefore timed once on its own operands
/// (never with at::globalContext().deterministicAlgorithms(), and not while a graph is captured). What was
/// chosen can be kept for the next process. Ranks may choose differently, which changes roundings alone.
namespace apus::ops {

/// Takes choices over that an earlier process left in a folder, for one GPU; its own of this process stay.
/// Those of another kind of card or version of cuBLASLt are not looked at, and a damaged file counts as none.
/// Returns how many there were; 0 for the CPU.
/// Throws:      FileError if a file that is there cannot be read.
APUS_API int64_t load_gemm_choices(const std::filesystem::path& folder, at::Device device);

/// Writes what is known of one GPU's products, what was loaded included, in place of what the folder has.
/// Does nothing for the CPU. Processes may do so at once: the last one's file stays, whole. Throws:
/// FileError, std::filesystem::filesystem_error.
APUS_API void save_gemm_choices(const std::filesystem::path& folder, at::Device device);

}  // namespace apus::ops
