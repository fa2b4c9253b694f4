#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/file_lock.h"
#include "data/row_cache_key.h"
#include "data/row_file.h"

namespace apus {
class Clock;
class Logger;
}  // namespace apus

namespace apus::data {

/// What a folder of entries is used with.
struct RowCacheOptions {
  std::filesystem::path folder;
  /// Of all entries.
  int64_t max_bytes = 0;
};

/// Files of rows in a folder, one for each key, shared by the processes of a host.
///
/// An entry appears whole, is never changed, and may be removed at any time: who has it mapped keeps it. One
/// process at a time, which holds the lock, writes an entry.
/// Throws:  FileError if the folder cannot be used.
class RowCache final {
 public:
  /// Creates the folder.
  RowCache(RowCacheOptions options, const RowCacheKey& key, RowKind kind);

  /// The key's entry, if there is one that is whole. One that is damaged, of another version or of another
  /// key is named in the log.
  std::shared_ptr<const RowFile> find(Logger& logger) const;

  /// Waits until no other process prepares this entry; after some seconds the log names the lock.
  std::unique_ptr<FileLock> lock(const Clock& clock, Logger& logger) const;

  /// What of a writer that was killed lies around for this entry is removed. For the holder of the lock.
  void remove_leftovers() const;

  /// Removes the entries that were used least recently until all take no more than max_bytes; this one stays.
  void evict(Logger& logger) const;

  /// Where the entry lies.
  const std::filesystem::path& path() const { return path_; }

 private:
  RowCacheOptions options_;
  std::string key_text_;
  RowKind kind_;
  std::filesystem::path path_;
};

/// The key in the description of a file of rows; empty if there is none.
std::string key_in_description(std::string_view description);

}  // namespace apus::data
