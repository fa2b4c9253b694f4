#include "data/temporary_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <utility>

#include "apus/base/log.h"

namespace apus::data {
namespace {

/// For file systems that know no files without a name.
int open_and_unlink(const std::filesystem::path& folder) {
  std::string name = (folder / "apus-rows-XXXXXX").string();
  const int descriptor = ::mkostemp(name.data(), O_CLOEXEC);
  if (descriptor >= 0) ::unlink(name.c_str());
  return descriptor;
}

}  // namespace

TemporaryFile::TemporaryFile(std::filesystem::path where, int descriptor)
    : where_(std::move(where)), descriptor_(descriptor) {
  if (descriptor_ < 0) throw FileError("create a temporary file in", where_, errno);
}

TemporaryFile::TemporaryFile(TemporaryFile&& other) noexcept
    : where_(std::move(other.where_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

TemporaryFile::~TemporaryFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

TemporaryFile TemporaryFile::in_folder(const std::filesystem::path& folder) {
  int descriptor = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor < 0) descriptor = open_and_unlink(folder);
  return {folder, descriptor};
}

TemporaryFile TemporaryFile::in_memory() {
  return {"memory", ::memfd_create("apus-rows", MFD_CLOEXEC)};
}

TemporaryFile TemporaryFile::anywhere(Logger& logger) {
  const auto warn = [&](const FileError& error) {
    logger.warning(std::string(error.what()) + "; rows are kept in memory (TMPDIR names another folder)");
  };
  try {
    return in_folder(std::filesystem::temp_directory_path());
  } catch (const std::filesystem::filesystem_error& error) {
    warn(FileError("create a temporary file in", error.path1(), error.code().value()));
  } catch (const FileError& error) {
    warn(error);
  }
  return in_memory();
}

void TemporaryFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw FileError("write a temporary file in", where_, errno);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

MappedFile TemporaryFile::map() const {
  return MappedFile("/proc/self/fd/" + std::to_string(descriptor_));
}

}  // namespace apus::data
