#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "apus/base/env.h"
#include "apus/checkpoint/merge_places.h"
#include "apus/cli/flag_table.h"
#include "cli/training_run.h"

namespace apus::cli {

/// The flags of `apus merge`.
FlagTable merge_flags();

/// The flags of `apus export`: those, and --merge_lora.
FlagTable export_flags();

/// `apus merge --adapters DIR [--model BASE] [--output_dir OUT]`: writes base and adapter as one model.
/// Returns the exit code.
int run_merge(const Call& call);

/// `apus export --merge_lora true ...`: the same. Throws NotSupported without that.
int run_export(const Call& call);

/// The base's folder and who named it.
struct FoundBase {
  std::filesystem::path folder;
  std::string named_by;
};

/// `--model`, else what args.json of the adapter's folder or run says, else adapter_config.json's
/// base_model_name_or_path; hub ids through the local caches, relative folders from the working directory,
/// else from the adapter's folder. Throws: ConfigError listing what was tried.
FoundBase find_base(const std::string& model, const checkpoint::AdapterPlace& place,
                    const Environment& environment);

/// Where the model goes: `--output_dir`, or the place beside the run where that is empty or the run's own
/// output folder.
std::filesystem::path find_target(const std::string& output_dir, const checkpoint::AdapterPlace& place);

/// "5GB", "500MB", "2GiB" or a number of bytes.
/// Throws: ConfigError naming the flag.
int64_t parse_shard_size(const std::string& text);

}  // namespace apus::cli
