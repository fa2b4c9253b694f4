#include "apus/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace apus {
namespace {

std::string_view remedy(int code) {
  switch (code) {
    case ENOSPC:
      return "; the disk is full: free space there or choose another directory";
    case EDQUOT:
      return "; the disk quota is used up: free space there or choose another directory";
    case EACCES:
    case EPERM:
      return "; check the owner and permissions of the path or choose another directory";
    case EROFS:
      return "; the file system is mounted read-only: choose another directory";
    case ENOENT:
      return "; check the spelling of the path and that the directory exists";
    case ENOTDIR:
      return "; a file stands where a directory is expected";
    case EISDIR:
      return "; a directory stands where a file is expected";
    case EMFILE:
    case ENFILE:
      return "; too many files are open: raise `ulimit -n`";
    case EFBIG:
      return "; the file would exceed the file system's or `ulimit -f`'s limit";
    case EIO:
      return "; the disk reports a fault";
    default:
      return "";
  }
}

std::string file_message(std::string_view action, const std::filesystem::path& path, int code) {
  return detail::concat("cannot ", action, " ", path.string(), ": ", std::generic_category().message(code),
                        " (errno ", code, ")", remedy(code));
}

// Closes on the way out; errors of close are reported by fsync before it.
class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags, std::string_view action) {
    do {
      descriptor_ = ::open(path.c_str(), flags | O_CLOEXEC);
    } while (descriptor_ < 0 && errno == EINTR);
    if (descriptor_ < 0) throw FileError(action, path, errno);
  }
  ~Descriptor() { ::close(descriptor_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

std::filesystem::path directory_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

// A new file beside `path`; whatever stands there already is left alone.
int create_temporary(const std::filesystem::path& path, std::filesystem::path& temporary) {
  for (int attempt = 0;; ++attempt) {
    temporary = path.string() + detail::concat(".tmp-", ::getpid(), "-", attempt);
    const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (descriptor >= 0) return descriptor;
    if (errno != EEXIST && errno != EINTR) throw FileError("create", path, errno);
  }
}

}  // namespace

FileError::FileError(std::string_view action, std::filesystem::path path, int code)
    : Error(file_message(action, path, code)), path_(std::move(path)), code_(code) {}

FileError::~FileError() = default;

MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
  const Descriptor file(path_, O_RDONLY, "open");
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) throw FileError("inspect", path_, errno);
  if (S_ISDIR(facts.st_mode)) throw FileError("map", path_, EISDIR);
  if (facts.st_size == 0) return;
  const auto size = static_cast<std::size_t>(facts.st_size);
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (memory == MAP_FAILED) throw FileError("map", path_, errno);
  bytes_ = {static_cast<const std::byte*>(memory), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

std::string_view MappedFile::text() const {
  return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
}

std::string read_file(const std::filesystem::path& path) {
  const Descriptor file(path, O_RDONLY, "open");
  std::string out;
  struct stat facts {};
  if (::fstat(file.get(), &facts) == 0 && S_ISREG(facts.st_mode)) out.reserve(facts.st_size);
  std::string piece(1 << 16, '\0');
  while (true) {
    const ssize_t count = ::read(file.get(), piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw FileError("read", path, errno);
    if (count == 0) return out;
    out.append(piece.data(), static_cast<std::size_t>(count));
  }
}

FileWriter::FileWriter(std::filesystem::path path)
    : path_(std::move(path)), descriptor_(create_temporary(path_, temporary_)) {}

FileWriter::~FileWriter() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void FileWriter::write(std::span<const std::byte> bytes) {
  APUS_CHECK(descriptor_ >= 0, Error, path_.string(), " is finished; nothing more can be written to it");
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw FileError("write", path_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    written_bytes_ += count;
  }
}

void FileWriter::write(std::string_view text) {
  write(std::as_bytes(std::span(text.data(), text.size())));
}

void FileWriter::finish() {
  APUS_CHECK(descriptor_ >= 0, Error, path_.string(), " is finished already");
  if (::fsync(descriptor_) != 0) throw FileError("write", path_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw FileError("replace", path_, errno);
  ::close(std::exchange(descriptor_, -1));
  sync_directory(directory_of(path_));
}

void write_file_atomic(const std::filesystem::path& path, std::string_view bytes) {
  FileWriter writer(path);
  writer.write(bytes);
  writer.finish();
}

void sync_directory(const std::filesystem::path& path) {
  const Descriptor directory(path, O_RDONLY | O_DIRECTORY, "open");
  // Some network file systems cannot sync a directory and say EINVAL.
  if (::fsync(directory.get()) != 0 && errno != EINVAL) throw FileError("sync", path, errno);
}

int64_t free_bytes(const std::filesystem::path& path) {
  std::filesystem::path existing = path.empty() ? std::filesystem::path(".") : path;
  struct statvfs facts {};
  while (::statvfs(existing.c_str(), &facts) != 0) {
    if (errno == EINTR) continue;
    const std::filesystem::path parent = directory_of(existing);
    if (errno != ENOENT || parent == existing) throw FileError("inspect", existing, errno);
    existing = parent;
  }
  return static_cast<int64_t>(facts.f_bavail) * static_cast<int64_t>(facts.f_frsize);
}

void ensure_directory(const std::filesystem::path& path) {
  std::error_code code;
  std::filesystem::create_directories(path, code);
  if (code) throw FileError("create directory", path, code.value());
  if (!std::filesystem::is_directory(path, code)) throw FileError("create directory", path, ENOTDIR);
}

}  // namespace apus
