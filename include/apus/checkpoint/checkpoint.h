#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/checkpoint/full_weights.h"
#include "apus/nn/module.h"
#include "apus/parallel/sharded_model.h"

namespace apus::checkpoint {

/// What a checkpoint holds besides the optimizer's shards.
struct APUS_API CheckpointContents {
  /// Writes an adapter into the folder, from the fp32 masters, and what lies beside; called on rank 0. With
  /// `full_weights` there are no masters: it writes what lies beside the model.
  std::function<void(const std::filesystem::path&, const std::vector<nn::NamedParameter>&)> write_weights;
  /// The whole model is written (write_full_weights), and masters are gathered nowhere.
  std::optional<FullWeightsOptions> full_weights = {};
  /// Becomes trainer_state.json.
  std::function<nlohmann::ordered_json()> trainer_state;
  /// Bytes that can still be written to a folder; absent: what the file system says.
  std::function<int64_t(const std::filesystem::path&)> free_space = nullptr;
};

/// Whether a checkpoint of the model fits into the file system of a folder that is there, or will be: all
/// ranks' optimizer shards, the weights, and 1 MiB for the rest. Older checkpoints count as staying, as they
/// go only once the new one is whole. One look counts for all ranks, which write to one file system.
/// Throws: CheckpointError with what is needed, what is free and the remedy; FileError.
APUS_API void require_space(const std::filesystem::path& folder, parallel::ShardedModel& model,
                            const CheckpointContents& contents);

/// Writes "<parent>/checkpoint-<step>" so that it exists whole or not at all.
///
/// Rank 0 checks that all ranks' shards and the weights will fit. All ranks write beside the folder
/// ("checkpoint-<step>.partial"); when all are well, rank 0 sees that every rank's shard has arrived in its
/// file system, hashes and fsyncs the files, writes the manifest and renames the folder. One rank's error
/// ends all with its message, and the partial folder is removed. An existing checkpoint of that step is
/// replaced only by a whole one. Collectives: ShardedModel::gather_masters, or those of write_full_weights,
/// and status exchanges through the store. Throws: on a rank that failed FileError, or CheckpointError (rank
/// 0: too little space, a missing shard);
///         on the others CommError with the failed rank's message.
APUS_API std::filesystem::path save_checkpoint(const std::filesystem::path& parent, int64_t step,
                                               parallel::ShardedModel& model,
                                               const CheckpointContents& contents);

/// What load_checkpoint looks at before it takes a file's bytes.
enum class FileCheck {
  kHashes,  ///< each rank checks the hashes of the files that it reads
  kSizes,   ///< somebody has just done so for all files (damage_of)
};

/// Restores masters and moments of every rank, and returns the text of trainer_state.json.
/// Throws: CheckpointError on the ranks that find the checkpoint another world's, another model's or damaged;
///         on the others, if there are any, CommError with the message of the lowest such rank.
APUS_API std::string load_checkpoint(const std::filesystem::path& checkpoint, parallel::ShardedModel& model,
                                     FileCheck check = FileCheck::kHashes);

/// A finished checkpoint of a run.
struct APUS_API FoundCheckpoint {
  int64_t step = 0;
  std::filesystem::path path;
};

/// All whole checkpoints below `parent`, by rising step. Folders without a manifest or with missing files are
/// passed over. A checkpoint whose replacement was cut off ("checkpoint-<step>.old" alone) gets its name back
/// first.
APUS_API std::vector<FoundCheckpoint> whole_checkpoints(const std::filesystem::path& parent);

/// Why a checkpoint cannot be loaded: recomputes the hash of every file, not only of this rank's. Nothing if
/// it is sound. Memory: none beyond the page cache; time: reads the whole checkpoint.
APUS_API std::optional<std::string> damage_of(const std::filesystem::path& checkpoint);

/// Removes what saves that were killed have left below `parent`: "checkpoint-<step>.partial" and, where
/// "checkpoint-<step>" exists, "checkpoint-<step>.old" (alone, it gets its name back). Call it on one rank,
/// while no save runs. Returns what was removed, sorted. Throws: FileError if a folder cannot be removed.
APUS_API std::vector<std::filesystem::path> sweep_leftovers(const std::filesystem::path& parent);

}  // namespace apus::checkpoint
