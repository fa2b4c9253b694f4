#include "data/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "apus/base/file.h"

namespace apus::data {

FileBytes::FileBytes(std::filesystem::path path) : path_(std::move(path)) {
  do {
    descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  } while (descriptor_ < 0 && errno == EINTR);
  if (descriptor_ < 0) throw FileError("open", path_, errno);
  struct stat facts {};
  if (::fstat(descriptor_, &facts) == 0) size_ = facts.st_size;
}

FileBytes::~FileBytes() {
  ::close(descriptor_);
}

size_t FileBytes::read(std::span<char> out) {
  ssize_t count = -1;
  do {
    count = ::read(descriptor_, out.data(), out.size());
  } while (count < 0 && errno == EINTR);
  if (count < 0) throw FileError("read", path_, errno);
  position_ += count;
  return static_cast<size_t>(count);
}

void FileBytes::skip(int64_t bytes) {
  if (::lseek(descriptor_, bytes, SEEK_CUR) < 0) throw FileError("read", path_, errno);
  position_ += bytes;
}

std::string FileBytes::beginning(size_t count) const {
  std::string bytes(count, '\0');
  const ssize_t got = ::pread(descriptor_, bytes.data(), count, 0);
  if (got < 0) throw FileError("read", path_, errno);
  bytes.resize(static_cast<size_t>(got));
  return bytes;
}

}  // namespace apus::data
