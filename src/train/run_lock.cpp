#include "train/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "apus/base/error.h"
#include "apus/base/file.h"

namespace apus::train {

RunLock::RunLock(const std::filesystem::path& run_dir) {
  ensure_directory(run_dir);
  const std::filesystem::path path = run_dir / ".lock";
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0) throw FileError("create", path, errno);
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
  const int code = errno;
  ::close(descriptor_);
  // A file system without locks is no reason not to train.
  descriptor_ = -1;
  APUS_CHECK(code != EWOULDBLOCK, ConfigError, run_dir.string(),
             " is being written by another process: the same command is running already; wait for it, or choose another "
             "--output_dir");
}

RunLock::~RunLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace apus::train
