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

namespace apus::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "checkpoint-";

void commit(const fs::path& partial, const fs::path& final_path, int world) {
  write_manifest(partial, world);
  if (fs::exists(final_path)) {
    const fs::path old = final_path.string() + ".old";
    fs::remove_all(old);
    fs::rename(final_path, old);
    fs::rename(partial, final_path);
    fs::remove_all(old);
  } else {
    fs::rename(partial, final_path);
  }
  sync_directory(final_path.parent_path());
}

/// Removes what a failed save left, on rank 0, and never throws.
void discard(const fs::path& partial) {
  std::error_code ignored;
  fs::remove_all(partial, ignored);
}

}  // namespace

fs::path save_checkpoint(const fs::path& parent, int64_t step, parallel::ShardedModel& model,
                         const CheckpointContents& contents) {
  comm::Communicator& dp = model.dp();
  const bool first = dp.rank() == 0;
  const fs::path final_path = parent / (std::string(kPrefix) + std::to_string(step));
  const fs::path partial = final_path.string() + ".partial";
  const std::vector<nn::NamedParameter> masters = model.gather_masters();
  try {
    comm::run_agreed(dp, "creating " + partial.string(), [&] {
      if (!first) return;
      fs::remove_all(partial);
      ensure_directory(partial);
    });
    comm::run_agreed(dp, "writing " + partial.string(), [&] {
      write_optimizer_shard(partial, dp.rank(), dp.size(), model.updates(), model.optimizer_states());
      if (!first) return;
      contents.write_weights(partial, masters);
      write_file_atomic(partial / "trainer_state.json", dump_json(contents.trainer_state(), {.indent = 2}) + "\n");
    });
    comm::run_agreed(dp, "finishing " + final_path.string(), [&] {
      if (first) commit(partial, final_path, dp.size());
    });
  } catch (const std::exception&) {
    if (first) discard(partial);
    throw;
  }
  return final_path;
}

std::string load_checkpoint(const fs::path& checkpoint, parallel::ShardedModel& model) {
  comm::Communicator& dp = model.dp();
  std::string state;
  int64_t updates = 0;
  comm::run_agreed(dp, "loading " + checkpoint.string(), [&] {
    const Manifest manifest = read_manifest(checkpoint);
    if (manifest.world != dp.size()) {
      throw CheckpointError(checkpoint.string(), "",
                            detail::concat("was written by ", manifest.world, " ranks, this run has ", dp.size(),
                                           "; start it with ", manifest.world, " ranks, or into another output_dir"));
    }
    verify_file(checkpoint, manifest, optimizer_shard_name(dp.rank(), dp.size()));
    verify_file(checkpoint, manifest, "trainer_state.json");
    updates = read_optimizer_shard(checkpoint, dp.rank(), dp.size(), model.optimizer_states());
    state = read_file(checkpoint / "trainer_state.json");
  });
  model.load_finished(updates);
  return state;
}

std::vector<FoundCheckpoint> whole_checkpoints(const fs::path& parent) {
  std::vector<FoundCheckpoint> found;
  if (!fs::is_directory(parent)) return found;
  for (const auto& entry : fs::directory_iterator(parent)) {
    const std::string name = entry.path().filename().string();
    const std::string digits = name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : "";
    const bool is_number = !digits.empty() && digits.size() < 18 &&
                           std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!entry.is_directory() || !is_number) continue;
    try {
      read_manifest(entry.path());
      found.push_back({std::stoll(digits), entry.path()});
    } catch (const Error&) {
      continue;  // not whole: an older one will do
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return found;
}

}  // namespace apus::checkpoint
