#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/nn/module.h"
#include "apus/parallel/sharded_model.h"

namespace apus::checkpoint {

/// What a checkpoint holds besides the optimizer's shards.
struct APUS_API CheckpointContents {
  /// Writes the weights (an adapter, or a model) into the folder, from the fp32 masters; called on rank 0.
  std::function<void(const std::filesystem::path&, const std::vector<nn::NamedParameter>&)> write_weights;
  /// Becomes trainer_state.json.
  std::function<nlohmann::ordered_json()> trainer_state;
};

/// Writes "<parent>/checkpoint-<step>" so that it exists whole or not at all.
///
/// All ranks write beside it ("checkpoint-<step>.partial"); when all are well, rank 0 hashes and fsyncs the files,
/// writes the manifest and renames the folder. One rank's error ends all with its message, and the partial
/// folder is removed. An existing checkpoint of that step is replaced only by a whole one.
/// Collectives: ShardedModel::gather_masters, and status exchanges through the store.
/// Throws: FileError on the rank that failed, CommError with its message on the others.
APUS_API std::filesystem::path save_checkpoint(const std::filesystem::path& parent, int64_t step,
                                               parallel::ShardedModel& model, const CheckpointContents& contents);

/// Restores masters and moments of every rank, and returns the text of trainer_state.json.
/// Throws: CheckpointError if the checkpoint is another world's, another model's or damaged (hashes are checked);
///         the same error on all ranks.
APUS_API std::string load_checkpoint(const std::filesystem::path& checkpoint, parallel::ShardedModel& model);

/// A finished checkpoint of a run.
struct APUS_API FoundCheckpoint {
  int64_t step = 0;
  std::filesystem::path path;
};

/// All whole checkpoints below `parent`, by rising step. Folders without a manifest or with missing files are passed
/// over.
APUS_API std::vector<FoundCheckpoint> whole_checkpoints(const std::filesystem::path& parent);

}  // namespace apus::checkpoint
