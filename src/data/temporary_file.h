#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "apus/base/file.h"

namespace apus {
class Logger;
}

namespace apus::data {

/// A file without a name: written once from start to end, then mapped; gone when nobody holds it any more,
/// whatever becomes of the process.
/// Throws:  FileError.
class TemporaryFile final {
 public:
  /// In the folder.
  static TemporaryFile in_folder(const std::filesystem::path& folder);
  /// In memory that is shared, not anonymous: swapped out, but counted as the process's.
  static TemporaryFile in_memory();
  /// In the system's folder for temporary files; in memory, with a warning, where that cannot be written.
  static TemporaryFile anywhere(Logger& logger);

  ~TemporaryFile();
  TemporaryFile(TemporaryFile&& other) noexcept;
  TemporaryFile& operator=(TemporaryFile&&) = delete;

  /// Appends bytes.
  void write(std::span<const std::byte> bytes);
  /// The bytes written so far; the mapping outlives this object.
  MappedFile map() const;

 private:
  TemporaryFile(std::filesystem::path where, int descriptor);

  std::filesystem::path where_;
  int descriptor_;
};

}  // namespace apus::data
