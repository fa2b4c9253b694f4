#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/hash.h"
#include "apus/data/rows.h"
#include "data/row_records.h"
#include "data/temporary_file.h"

namespace apus::data {

/// What kind of rows a file holds.
enum class RowKind : uint32_t { kSft = 1, kDpo = 2 };

/// The version of the layout, which docs/design/data.md describes. Any change to it, or to append_record,
/// raises it.
inline constexpr uint32_t kRowFileVersion = 2;

/// A row's entry in the index, as it lies in the file.
struct RowEntry {
  uint64_t offset = 0;  ///< of the record, in bytes from the first one
  uint64_t line = 0;    ///< of the row's place
  uint32_t words = 0;   ///< length of the record
  uint32_t tokens = 0;
  uint32_t file = 0;   ///< of the row's place; the top bit says that the row was cut
  uint32_t check = 0;  ///< low half of XXH64 over the record
};
static_assert(sizeof(RowEntry) == 32);

/// The bit of RowEntry::file for rows that were cut.
inline constexpr uint32_t kTruncatedBit = uint32_t{1} << 31;

/// Where a file of rows is written to.
class RowSink {
 public:
  virtual ~RowSink() = default;
  virtual void write(std::span<const std::byte> bytes) = 0;
  /// Makes the file complete and maps it.
  virtual MappedFile finish() = 0;
};

/// A file that appears under its name once it is whole.
std::unique_ptr<RowSink> named_sink(const std::filesystem::path& path);
/// A file without a name.
std::unique_ptr<RowSink> temporary_sink(Logger& logger);

/// Rows on their way into a file, as one worker made them.
struct RowRecords {
  std::vector<uint32_t> words;
  std::vector<RowEntry> entries;  ///< offsets count from the first of `words`

  /// Appends a row with its place.
  template <typename Row>
  void add(const Row& row, bool truncated) {
    const size_t begin = words.size();
    append_record(row, words);
    const auto record = std::as_bytes(std::span(words).subspan(begin));
    entries.push_back({.offset = begin * sizeof(uint32_t),
                       .line = static_cast<uint64_t>(row.place.line),
                       .words = static_cast<uint32_t>(words.size() - begin),
                       .tokens = static_cast<uint32_t>(tokens_of(row)),
                       .file = static_cast<uint32_t>(row.place.file) | (truncated ? kTruncatedBit : 0),
                       .check = static_cast<uint32_t>(Hash64().update(record).digest())});
  }
};

/// Writes a file of rows from start to end; the index waits in a file without a name.
/// Memory:  nothing that grows with the rows.
/// Throws:  FileError.
class RowFileWriter final {
 public:
  RowFileWriter(std::unique_ptr<RowSink> sink, RowKind kind, Logger& logger);
  /// Appends rows.
  void append(const RowRecords& rows);
  /// Rows so far.
  int64_t rows() const { return rows_; }
  /// Adds index and description, and maps the file.
  MappedFile finish(std::string_view description);

 private:
  void write(std::span<const std::byte> bytes);

  std::unique_ptr<RowSink> sink_;
  RowKind kind_;
  TemporaryFile index_;
  int64_t rows_ = 0;
  uint64_t record_bytes_ = 0;
  Hash64 records_hash_;
  Hash64 index_hash_;
};

/// How much of a file is compared with its checksums before it is used.
struct RowFileCheck {
  /// Records are read through up to this many bytes; those of larger files only when a row is asked for.
  int64_t most_record_bytes = int64_t{4} << 30;
};

/// A file of rows, mapped: nothing of it lies in anonymous memory. Threads: const, may be shared.
class RowFile final {
 public:
  /// Opens a named file and compares it with its checksums (through a buffer, so that it does not become
  /// resident).
  /// Throws:  DataError: another kind of file or version, cut short, or damaged; FileError.
  static std::shared_ptr<const RowFile> open(const std::filesystem::path& path, RowKind kind,
                                             const RowFileCheck& check = {});
  /// One that was just written.
  RowFile(MappedFile file, RowKind kind);

  int64_t size() const { return static_cast<int64_t>(index_.size()); }
  const RowEntry& entry(int64_t row) const { return index_[static_cast<size_t>(row)]; }
  /// A record's words.
  /// Throws:  DataError if they are not those that were written.
  std::span<const uint32_t> record(int64_t row) const;
  /// The text that the writer was given.
  std::string_view description() const { return description_; }
  /// Bytes of the file.
  int64_t bytes() const { return static_cast<int64_t>(file_.bytes().size()); }
  std::string name() const { return file_.path().string(); }

 private:
  MappedFile file_;
  std::span<const std::byte> records_;
  std::span<const RowEntry> index_;
  std::string_view description_;
};

/// The rows of a file as a table.
template <typename Row>
class RowFileTable final : public RowTable<Row> {
 public:
  explicit RowFileTable(std::shared_ptr<const RowFile> file) : file_(std::move(file)) {}

  int64_t size() const override { return file_->size(); }
  Row row(int64_t ordinal) const override {
    Row row;
    const RowPlace at = place(ordinal);
    if (!read_record(file_->record(ordinal), row))
      throw DataError(file_->name(), 0, "row " + std::to_string(ordinal) + " is no row");
    row.place = at;
    return row;
  }
  int64_t tokens(int64_t ordinal) const override { return entry(ordinal).tokens; }
  RowPlace place(int64_t ordinal) const override {
    const RowEntry& at = entry(ordinal);
    return {static_cast<int32_t>(at.file & ~kTruncatedBit), static_cast<int64_t>(at.line)};
  }

 private:
  const RowEntry& entry(int64_t ordinal) const {
    APUS_CHECK(ordinal >= 0 && ordinal < size(), ShapeError, "row ", ordinal, " is outside the dataset of ",
               size(), " rows");
    return file_->entry(ordinal);
  }

  std::shared_ptr<const RowFile> file_;
};

}  // namespace apus::data
