#pragma once

#include <filesystem>
#include <functional>

namespace apus::data {

/// Holds a lock among the processes of a host (and the threads of one) through a file, which is removed again
/// by whoever lets go of it. The kernel lets go of the lock of a process that dies.
class FileLock final {
 public:
  /// Returns once the lock is held; calls `on_wait` every few hundredths of a second until then.
  /// Throws:  FileError if the file cannot be created or locked.
  FileLock(std::filesystem::path path, const std::function<void()>& on_wait);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  bool try_once();

  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace apus::data
