#pragma once

#include <filesystem>
#include <memory>
#include <vector>

namespace apus::checkpoint {

/// Holds a folder for one process (and one thread of it) at a time. The kernel lets go for a process that
/// dies.
class FolderLock final {
 public:
  /// Throws: FileError; ConfigError if somebody else has it.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_ = -1;
};

/// A folder that appears whole or not at all: "TARGET.partial" until publish(). Of several processes one can
/// have a target at a time; what a killed one has left is removed.
class MergeTarget final {
 public:
  /// What the folder must not replace or lie around.
  struct Rules {
    bool overwrite = false;
    std::vector<std::filesystem::path> inputs = {};
  };

  /// Checks the rules, then makes the empty partial folder.
  /// Throws: ConfigError, FileError.
  MergeTarget(const std::filesystem::path& target, const Rules& rules);
  /// Without publish() nothing remains.
  ~MergeTarget();
  MergeTarget(const MergeTarget&) = delete;
  MergeTarget& operator=(const MergeTarget&) = delete;

  /// Where to write.
  const std::filesystem::path& partial() const { return partial_; }
  /// Absolute, links resolved.
  const std::filesystem::path& path() const { return target_; }
  /// Makes the folder durable and gives it its name, in place of an earlier one.
  /// Throws: FileError.
  void publish();

 private:
  std::filesystem::path target_;
  std::filesystem::path partial_;
  std::unique_ptr<FolderLock> lock_;
};

}  // namespace apus::checkpoint
