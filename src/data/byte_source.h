#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace apus::data {

/// Bytes that come one after another.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Puts the next bytes into `out` and returns how many; 0 at the end. `out` must not be empty.
  virtual size_t read(std::span<char> out) = 0;
};

/// A file's bytes as they lie on disk. Unlike a mapping it survives that the file is cut short meanwhile.
/// Throws:  FileError.
class FileBytes final : public ByteSource {
 public:
  explicit FileBytes(std::filesystem::path path);
  ~FileBytes() override;
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  size_t read(std::span<char> out) override;
  /// Passes over bytes without reading them.
  void skip(int64_t bytes);
  /// The first bytes, at most `count`, wherever reading stands.
  std::string beginning(size_t count) const;
  /// Bytes read so far.
  int64_t position() const { return position_; }
  /// Bytes of the file when it was opened.
  int64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  int64_t position_ = 0;
  int64_t size_ = 0;
};

/// Unpacks gzip data, one member after another; zeros behind the last one are passed over. `file` must
/// outlive it.
/// Throws:  from read: DataError naming the file and the byte where it is damaged or ends early.
std::unique_ptr<ByteSource> unpack_gzip(FileBytes& file);

/// Unpacks zstd data, one frame after another, with windows up to 128 MiB. As above.
std::unique_ptr<ByteSource> unpack_zstd(FileBytes& file);

}  // namespace apus::data
