#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "apus/base/api.h"
#include "apus/base/error.h"

namespace apus {

/// The operating system refused something about a file.
class APUS_API FileError final : public Error {
 public:
  /// `action` is a verb such as "open"; `code` an errno value.
  /// The message becomes "cannot ACTION PATH: REASON (errno N); REMEDY".
  FileError(std::string_view action, std::filesystem::path path, int code);
  ~FileError() override;

  /// The file or directory it is about.
  const std::filesystem::path& path() const { return path_; }
  /// The errno value.
  int code() const { return code_; }

 private:
  std::filesystem::path path_;
  int code_;
};

/// A file's bytes, mapped read-only and privately. An empty file gives an empty span. Movable.
/// Memory:      none beyond the page cache.
/// Throws:      FileError if the file cannot be opened or mapped.
class APUS_API MappedFile final {
 public:
  /// Maps the whole file as it is now. It may be removed or replaced afterwards, but must not be cut short:
  /// reading beyond its new end kills the process.
  explicit MappedFile(std::filesystem::path path);
  ~MappedFile();
  /// The bytes stay where they are.
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  /// Valid while this object, or the one that it was moved to, lives.
  std::span<const std::byte> bytes() const { return bytes_; }
  /// The same bytes as text.
  std::string_view text() const;
  /// The path that was opened.
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

/// The whole file.
/// Throws:      FileError.
APUS_API std::string read_file(const std::filesystem::path& path);

/// Writes a file that appears whole or not at all: bytes go to a temporary beside it, which `finish`
/// makes durable and renames. Without `finish` nothing remains.
/// Throws:      FileError from every method; the target is then unchanged.
class APUS_API FileWriter final {
 public:
  /// Creates the temporary; permissions are 0644 less the process's umask.
  explicit FileWriter(std::filesystem::path path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  /// Appends all of the bytes.
  void write(std::span<const std::byte> bytes);
  /// Appends the bytes of a text.
  void write(std::string_view text);
  /// fsync, rename over the target, fsync of the directory. Nothing may be written afterwards.
  void finish();

  /// Bytes appended so far.
  int64_t written_bytes() const { return written_bytes_; }
  /// The path under which the file will appear.
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  int64_t written_bytes_ = 0;
};

/// Replaces a file atomically and durably: after a crash it holds the old or the new bytes, never a mixture.
/// Throws:      FileError.
APUS_API void write_file_atomic(const std::filesystem::path& path, std::string_view bytes);

/// Makes a directory's entries (renames, new files) durable.
/// Throws:      FileError.
APUS_API void sync_directory(const std::filesystem::path& path);

/// Bytes that an ordinary user can still write to the file system of `path`, or of its nearest existing
/// parent. Throws:      FileError.
APUS_API int64_t free_bytes(const std::filesystem::path& path);

/// Creates the directory and its parents where missing.
/// Throws:      FileError, also if a file of that name is in the way.
APUS_API void ensure_directory(const std::filesystem::path& path);

}  // namespace apus
