#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/parallel/sharded_model.h"

namespace apus::checkpoint {

/// "optimizer/rank-00002-of-00004.safetensors"
APUS_API std::string optimizer_shard_name(int rank, int world);

/// Bytes of the tensors in one rank's shard: 12 for each element that it owns, 6 with bf16 states.
APUS_API int64_t optimizer_shard_bytes(const std::vector<parallel::GroupState>& states);

/// Writes one rank's masters and moments below `folder`: for each group the tensors GROUP.master,
/// GROUP.exp_avg, GROUP.exp_avg_sq in the dtype of the states (fp32 or bf16) over the rank's own range,
/// whatever the policy. Metadata: world, rank, updates, and each group's layout fingerprint and padded size.
/// States on a GPU pass through the host in pieces of 64 MiB. Throws: FileError.
APUS_API void write_optimizer_shard(const std::filesystem::path& folder, int rank, int world, int64_t updates,
                                    const std::vector<parallel::GroupState>& states);

/// Fills the states from the file of this rank and returns the number of updates made.
/// Throws: CheckpointError naming file and tensor if the file is another world's, another model's or
/// holds states of another dtype, or is broken.
APUS_API int64_t read_optimizer_shard(const std::filesystem::path& folder, int rank, int world,
                                      const std::vector<parallel::GroupState>& states);

}  // namespace apus::checkpoint
