#include "apus/checkpoint/merge_places.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/checkpoint/checkpoint.h"

namespace apus::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMerges = "merges";

/// N of a name such as "checkpoint-N" or "vN-20260131-235959"; nothing for others.
std::optional<int64_t> number_in(const std::string& name, std::string_view prefix, bool more_follows) {
  if (!name.starts_with(prefix)) return std::nullopt;
  const size_t end = std::min(name.find_first_not_of("0123456789", prefix.size()), name.size());
  const size_t digits = end - prefix.size();
  const bool ends_well = more_follows ? end < name.size() && name[end] == '-' : end == name.size();
  if (digits == 0 || digits > 18 || !ends_well) return std::nullopt;
  return std::stoll(name.substr(prefix.size(), digits));
}

std::optional<int64_t> version_of(const fs::path& folder) {
  return number_in(folder.filename().string(), "v", true);
}

bool is_adapter(const fs::path& folder) {
  std::error_code unreadable;
  return fs::is_regular_file(folder / "adapter_config.json", unreadable);
}

bool is_run(const fs::path& folder) {
  return fs::is_regular_file(folder / "args.json");
}

/// The newest checkpoint with an adapter: a whole one of apus, else, where another program wrote the run, the
/// one with the highest number.
std::optional<fs::path> newest_checkpoint(const fs::path& run) {
  std::optional<fs::path> newest;
  for (const FoundCheckpoint& found : whole_checkpoints(run))
    if (is_adapter(found.path)) newest = found.path;
  if (newest || is_run(run)) return newest;
  int64_t highest = -1;
  for (const auto& entry : fs::directory_iterator(run)) {
    const auto number = number_in(entry.path().filename().string(), "checkpoint-", false);
    if (!number || *number <= highest || !is_adapter(entry.path())) continue;
    highest = *number;
    newest = entry.path();
  }
  return newest;
}

/// That of the newest version that has one.
std::optional<fs::path> newest_of_versions(const fs::path& output_dir) {
  std::vector<fs::path> versions;
  for (const auto& entry : fs::directory_iterator(output_dir))
    if (entry.is_directory() && version_of(entry.path())) versions.push_back(entry.path());
  std::ranges::sort(versions, std::ranges::greater(), [](const fs::path& path) { return *version_of(path); });
  for (const fs::path& version : versions)
    if (auto found = newest_checkpoint(version)) return found;
  return std::nullopt;
}

AdapterPlace place_of(const fs::path& adapter) {
  AdapterPlace place{.adapter = fs::canonical(adapter)};
  const fs::path run = place.adapter.parent_path();
  if (!number_in(place.adapter.filename().string(), "checkpoint-", false) || !is_run(run)) return place;
  place.run_dir = run;
  if (version_of(run)) place.output_dir = run.parent_path();
  return place;
}

/// What lies there instead of an adapter.
std::string instead(const fs::path& named) {
  if (!fs::exists(named)) return "does not exist";
  if (!fs::is_directory(named)) return "is no folder";
  if (fs::exists(named / "config.json"))
    return "is a whole model, which needs no merge and is trained as --model";
  return "holds no adapter_config.json, and no whole checkpoint with one";
}

}  // namespace

AdapterPlace find_adapter(const fs::path& named, std::string_view flag) {
  if (is_adapter(named)) return place_of(named);
  std::error_code unreadable;
  if (fs::is_directory(named, unreadable)) {
    if (const auto found = newest_checkpoint(named)) return place_of(*found);
    if (const auto found = newest_of_versions(named)) return place_of(*found);
  }
  throw ConfigError(
      detail::concat(flag, " ", named.string(), " ", instead(named),
                     "; name a checkpoint-N of a LoRA run, the run's folder, or a PEFT adapter's folder"));
}

fs::path merge_target(const AdapterPlace& place) {
  if (!place.run_dir.empty()) return place.run_dir / kMerges;
  return place.adapter.string() + "-merged";
}

void link_newest_merge(const AdapterPlace& place) {
  if (place.output_dir.empty() || !fs::is_directory(merge_target(place))) return;
  const fs::path link = place.output_dir / kMerges;
  if (fs::exists(fs::symlink_status(link)) && !fs::is_symlink(link)) return;
  const fs::path fresh = link.string() + ".new";
  std::error_code code;
  fs::remove(fresh, code);
  fs::create_directory_symlink(place.run_dir.filename() / kMerges, fresh, code);
  if (!code) fs::rename(fresh, link, code);
  if (code) throw FileError("link", link, code.value());
}

}  // namespace apus::checkpoint
