#include "data/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "apus/base/file.h"

namespace apus::data {

FileLock::FileLock(std::filesystem::path path, const std::function<void()>& on_wait)
    : path_(std::move(path)) {
  while (!try_once()) {
    on_wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

bool FileLock::try_once() {
  const int descriptor = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) throw FileError("create", path_, errno);
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    const int code = errno;
    ::close(descriptor);
    if (code == EWOULDBLOCK || code == EINTR) return false;
    throw FileError("lock", path_, code);
  }
  // Whoever held it may have removed the file between opening and locking: then it is a lock that nobody
  // sees.
  struct stat held {
  }, named{};
  const bool is_named = ::fstat(descriptor, &held) == 0 && ::stat(path_.c_str(), &named) == 0 &&
                        held.st_ino == named.st_ino && held.st_dev == named.st_dev;
  if (is_named) {
    descriptor_ = descriptor;
  } else {
    ::close(descriptor);
  }
  return is_named;
}

FileLock::~FileLock() {
  ::unlink(path_.c_str());
  ::close(descriptor_);
}

}  // namespace apus::data
