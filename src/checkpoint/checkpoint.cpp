#include "apus/checkpoint/checkpoint.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/json.h"
#include "apus/checkpoint/manifest.h"
#include "apus/checkpoint/optimizer_shard.h"
#include "apus/comm/agreed_phase.h"
#include "checkpoint/replace_folder.h"
#include "checkpoint/size_text.h"

namespace apus::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kPartial = ".partial";
constexpr std::string_view kOld = ".old";

constexpr int64_t kSmallFilesBytes = int64_t{1} << 20;  // headers, JSON files, the manifest

/// Of the whole model as it is stored, or of the fp32 masters.
int64_t weight_bytes(parallel::ShardedModel& model, const CheckpointContents& contents) {
  if (contents.full_weights) return full_weights_bytes(model, *contents.full_weights);
  int64_t elements = 0;
  for (const auto& group : model.groups()) {
    for (const memory::GroupParameter& parameter : group->parameters()) elements += parameter.tensor.numel();
  }
  return elements * static_cast<int64_t>(sizeof(float));
}

/// A rank on another node may have written to a disk of its own.
void require_all_shards(const fs::path& partial, int world) {
  for (int rank = 0; rank < world; ++rank) {
    const fs::path shard = partial / optimizer_shard_name(rank, world);
    if (fs::exists(shard)) continue;
    throw CheckpointError(shard.string(), "",
                          detail::concat("rank ", rank,
                                         " has written it, but rank 0 does not see it; --output_dir must "
                                         "be on storage that all nodes share"));
  }
}

void commit(const fs::path& partial, const fs::path& final_path, int world) {
  require_all_shards(partial, world);
  write_manifest(partial, world);
  replace_folder(partial, final_path);
}

/// Removes what a failed save left, and never throws. The other ranks only take away their own shards, and
/// the folders if these are now empty: they are where storage is not shared.
void discard(const fs::path& partial, int rank, int world) {
  std::error_code ignored;
  if (rank == 0) {
    fs::remove_all(partial, ignored);
    return;
  }
  fs::path path = partial / optimizer_shard_name(rank, world);
  for (int up = 0; up < 3; ++up, path = path.parent_path()) fs::remove(path, ignored);
}

/// The step of "checkpoint-<step><suffix>".
std::optional<int64_t> step_of(const std::string& name, std::string_view suffix) {
  if (!name.starts_with(kPrefix) || !name.ends_with(suffix)) return std::nullopt;
  if (name.size() < kPrefix.size() + suffix.size()) return std::nullopt;
  const std::string digits = name.substr(kPrefix.size(), name.size() - kPrefix.size() - suffix.size());
  const bool is_number =
      !digits.empty() && digits.size() < 18 &&
      std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number) return std::nullopt;
  return std::stoll(digits);
}

/// Folders named "checkpoint-<step><suffix>", sorted by name; none if `parent` does not exist.
std::vector<FoundCheckpoint> folders_of(const fs::path& parent, std::string_view suffix) {
  std::vector<FoundCheckpoint> found;
  if (!fs::is_directory(parent)) return found;
  for (const auto& entry : fs::directory_iterator(parent)) {
    const std::optional<int64_t> step = step_of(entry.path().filename().string(), suffix);
    if (step && entry.is_directory()) found.push_back({*step, entry.path()});
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return found;
}

void recover_all(const fs::path& parent) {
  for (const FoundCheckpoint& old : folders_of(parent, kOld))
    recover_replaced(fs::path(old.path).replace_extension());
}

/// The manifest, once the files that this rank reads are sound; another world's is for the caller to refuse.
Manifest undamaged(const fs::path& checkpoint, int rank, int world, FileCheck check) {
  try {
    Manifest manifest = read_manifest(checkpoint);
    if (manifest.world == world && check == FileCheck::kHashes) {
      verify_file(checkpoint, manifest, optimizer_shard_name(rank, world));
      verify_file(checkpoint, manifest, "trainer_state.json");
    }
    return manifest;
  } catch (const Error& error) {
    throw CheckpointError(checkpoint.string(), "",
                          detail::concat("is damaged: ", error.what(),
                                         "; remove this folder to resume from the checkpoint before it"));
  }
}

}  // namespace

void require_space(const fs::path& folder, parallel::ShardedModel& model,
                   const CheckpointContents& contents) {
  const int world = model.dp().size();
  const int64_t shard_bytes = optimizer_shard_bytes(model.optimizer_states());
  const int64_t weights = weight_bytes(model, contents);
  const int64_t needed = shard_bytes * world + weights + kSmallFilesBytes;
  const int64_t free = contents.free_space ? contents.free_space(folder) : free_bytes(folder);
  if (free >= needed) return;
  throw CheckpointError(
      folder.string(), "",
      detail::concat(
          "a checkpoint needs ", size_text(needed), " (", world, " x ", shard_bytes,
          " bytes of optimizer states, ", weights, " of weights, ", kSmallFilesBytes, " for the rest), only ",
          size_text(free),
          " are free; make room (older checkpoints go only when the new one is whole) or choose another "
          "--output_dir"));
}

fs::path save_checkpoint(const fs::path& parent, int64_t step, parallel::ShardedModel& model,
                         const CheckpointContents& contents) {
  comm::Communicator& dp = model.dp();
  const bool first = dp.rank() == 0;
  const fs::path final_path = parent / (std::string(kPrefix) + std::to_string(step));
  const fs::path partial = final_path.string() + std::string(kPartial);
  std::vector<nn::NamedParameter> masters;
  model.finish_update();  // on all ranks: below, one rank alone asks for its states
  if (!contents.full_weights) masters = model.gather_masters();
  try {
    comm::run_agreed(dp, "creating " + partial.filename().string(), [&] {
      if (!first) return;
      fs::remove_all(partial);
      ensure_directory(partial);
      require_space(partial, model, contents);
    });
    comm::run_agreed(dp, "writing " + partial.filename().string(), [&] {
      write_optimizer_shard(partial, dp.rank(), dp.size(), model.updates(), model.optimizer_states());
    });
    if (contents.full_weights) {
      comm::run_agreed(dp, "writing the model into " + partial.filename().string(),
                       [&] { write_full_weights(partial, model, *contents.full_weights); });
    }
    comm::run_agreed(dp, "describing " + partial.filename().string(), [&] {
      if (!first) return;
      contents.write_weights(partial, masters);
      write_file_atomic(partial / "trainer_state.json",
                        dump_json(contents.trainer_state(), {.indent = 2}) + "\n");
    });
    comm::run_agreed(dp, "finishing " + final_path.filename().string(), [&] {
      if (first) commit(partial, final_path, dp.size());
    });
  } catch (const std::exception&) {
    discard(partial, dp.rank(), dp.size());
    throw;
  }
  return final_path;
}

std::string load_checkpoint(const fs::path& checkpoint, parallel::ShardedModel& model, FileCheck check) {
  comm::Communicator& dp = model.dp();
  std::string state;
  int64_t updates = 0;
  comm::run_agreed(dp, "loading " + checkpoint.string(), [&] {
    const Manifest manifest = undamaged(checkpoint, dp.rank(), dp.size(), check);
    if (manifest.world != dp.size()) {
      throw CheckpointError(
          checkpoint.string(), "",
          detail::concat("was written by ", manifest.world, " ranks, this run has ", dp.size(),
                         "; start it with ", manifest.world,
                         " ranks, or give --resume_only_model true, which takes the weights alone"));
    }
    updates = read_optimizer_shard(checkpoint, dp.rank(), dp.size(), model.optimizer_states());
    state = read_file(checkpoint / "trainer_state.json");
  });
  model.load_finished(updates);
  return state;
}

std::vector<FoundCheckpoint> whole_checkpoints(const fs::path& parent) {
  recover_all(parent);
  std::vector<FoundCheckpoint> found = folders_of(parent, "");
  std::erase_if(found, [](const FoundCheckpoint& checkpoint) {
    try {
      read_manifest(checkpoint.path);
      return false;
    } catch (const Error&) {
      return true;  // not whole: an older one will do
    }
  });
  return found;
}

std::optional<std::string> damage_of(const fs::path& checkpoint) {
  try {
    const Manifest manifest = read_manifest(checkpoint);
    for (const ManifestEntry& entry : manifest.files) verify_file(checkpoint, manifest, entry.name);
    return std::nullopt;
  } catch (const Error& error) {
    return error.what();
  }
}

std::vector<fs::path> sweep_leftovers(const fs::path& parent) {
  recover_all(parent);
  std::vector<fs::path> removed;
  for (const std::string_view suffix : {kPartial, kOld}) {
    for (const FoundCheckpoint& left : folders_of(parent, suffix)) {
      std::error_code code;
      fs::remove_all(left.path, code);
      if (code) throw FileError("remove", left.path, code.value());
      removed.push_back(left.path);
    }
  }
  std::sort(removed.begin(), removed.end());
  return removed;
}

}  // namespace apus::checkpoint
