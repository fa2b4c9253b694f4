#pragma once

#include <filesystem>
#include <string_view>

#include "apus/base/api.h"

namespace apus::checkpoint {

/// An adapter that somebody named, and the run that it came from.
struct APUS_API AdapterPlace {
  /// The folder with adapter_config.json and adapter_model.safetensors; links resolved.
  std::filesystem::path adapter;
  /// The run's folder (OUT/vN-..., or OUT without versions); empty for an adapter of no run of apus.
  std::filesystem::path run_dir = {};
  /// The folder that holds the run's versions; empty where there are none.
  std::filesystem::path output_dir = {};
};

/// Finds the adapter that a path means: an adapter's own folder (a checkpoint-N, the links `best` and `last`,
/// a plain PEFT folder), else the newest whole checkpoint of a run's folder, else that of the newest version
/// in an output folder which has one. Throws: ConfigError naming `flag`, saying what lies there instead.
APUS_API AdapterPlace find_adapter(const std::filesystem::path& named, std::string_view flag = "--adapters");

/// Where a merge of it goes unless told otherwise: RUN/merges; beside an adapter of no run, ADAPTER-merged.
APUS_API std::filesystem::path merge_target(const AdapterPlace& place);

/// Lets OUT/merges point to RUN/merges, the newest merge, once that is there. Nothing happens without
/// versions, or where OUT/merges is no link. Throws: FileError.
APUS_API void link_newest_merge(const AdapterPlace& place);

}  // namespace apus::checkpoint
