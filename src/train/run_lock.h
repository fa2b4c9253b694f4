#pragma once

#include <filesystem>

namespace apus::train {

/// Keeps a second process from writing into a run's folder while this one does: an advisory lock on the file
/// ".lock" in it, which ends with the process however that ends. Movable by nobody; held by rank 0.
class RunLock final {
 public:
  /// Creates the folder if it is missing.
  /// Throws: ConfigError if another process holds the lock; FileError if the file cannot be created.
  explicit RunLock(const std::filesystem::path& run_dir);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace apus::train
