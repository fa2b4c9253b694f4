#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/base/clock.h"

namespace apus {
class Environment;
}

namespace apus::launch {

/// Where a rank that was started by LocalLauncher leaves its error: a folder that only this user can read.
inline constexpr const char* kErrorFolderVariable = "APUS_ERROR_DIR";

/// What an error says about its place in the chain of causes.
enum class ErrorKind {
  /// The rank's own: data, memory, a bug.
  kOwn,
  /// A flag or a file is wrong: starting again would give the same.
  kConfiguration,
  /// Communication broke: most likely because a peer had failed before.
  kConsequence,
};

/// Why one rank ended.
struct APUS_API RankError {
  int rank = 0;
  /// Nanoseconds since 1970, to find the first one on a machine.
  int64_t time_ns = 0;
  ErrorKind kind = ErrorKind::kOwn;
  std::string message = {};
};

/// The kind of an exception: ConfigError, NotSupported, DataError and CheckpointError are of configuration,
/// CommError is a consequence.
APUS_API ErrorKind error_kind(const std::exception& error);

/// The description of an exception that ends `rank` now.
APUS_API RankError describe_error(int rank, const std::exception& error, const Clock& clock);

/// Leaves the error where the launcher finds it: in the folder that APUS_ERROR_DIR names and, in torchrun's
/// own form, in the file that TORCHELASTIC_ERROR_FILE names. Does nothing if neither is set, and never
/// throws: the error itself matters more than the note about it.
APUS_API void leave_error(const Environment& environment, const RankError& error) noexcept;

/// Whether leave_error() leaves anything: somebody has asked for the errors of ranks.
APUS_API bool collects_errors(const Environment& environment);

/// All errors left in a folder, the earliest first. Files that are not whole are passed over.
APUS_API std::vector<RankError> collect_errors(const std::filesystem::path& folder);

}  // namespace apus::launch
