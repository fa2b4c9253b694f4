#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "apus/base/api.h"

namespace apus::checkpoint {

/// Name of the manifest inside a checkpoint folder.
inline constexpr const char* kManifestName = "checkpoint.json";

/// One file of a checkpoint.
struct APUS_API ManifestEntry {
  std::string name;  ///< path inside the folder, with forward slashes
  int64_t bytes = 0;
  std::string sha256;
};

/// What a whole checkpoint consists of. Written last: a folder without it was never finished.
struct APUS_API Manifest {
  int world = 1;  ///< data-parallel ranks that wrote it
  std::vector<ManifestEntry> files;

  /// The entry of a file. Throws CheckpointError if the manifest does not list it.
  const ManifestEntry& at(const std::filesystem::path& folder, const std::string& name) const;
};

/// Hashes and fsyncs every file below `folder`, then writes its manifest.
/// Throws: FileError.
APUS_API Manifest write_manifest(const std::filesystem::path& folder, int world);

/// Reads a manifest and checks that every file is there in full (sizes; not hashes).
/// Throws: CheckpointError naming the file that is missing or short.
APUS_API Manifest read_manifest(const std::filesystem::path& folder);

/// Recomputes the hash of one file of a checkpoint.
/// Throws: CheckpointError if it differs from the manifest's.
APUS_API void verify_file(const std::filesystem::path& folder, const Manifest& manifest, const std::string& name);

}  // namespace apus::checkpoint
