#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/api.h"
#include "apus/data/dataset_source.h"

namespace apus::data {

/// How the rows of a file are laid out; found out by looking into the file, not at its name.
enum class RowLayout {
  kLines,  ///< JSON Lines: one row a line
  kArray,  ///< one JSON array whose elements are the rows
};

/// How a file is packed.
enum class RowCompression { kNone, kGzip, kZstd };

/// Some consecutive rows of a file.
class APUS_API RowBlock final {
 public:
  /// Rows in the block.
  int64_t size() const { return static_cast<int64_t>(rows_.size()); }
  /// Text of a row, without the line end; empty for one that is too long. Valid as long as the block is not
  /// changed.
  std::string_view text(int64_t index) const;
  /// 1-based line at which the row begins, in the unpacked text.
  int64_t line(int64_t index) const { return rows_[static_cast<size_t>(index)].line; }
  /// Whether the row is longer than RowStreamOptions::max_row_bytes, so that its text was left out.
  bool is_too_long(int64_t index) const { return rows_[static_cast<size_t>(index)].too_long; }
  /// Bytes of all texts.
  int64_t bytes() const { return static_cast<int64_t>(text_.size()); }

  /// Appends a row.
  void add(std::string_view text, int64_t line);
  /// Appends a row whose text was left out.
  void add_too_long(int64_t line);
  /// Forgets all rows, but keeps the memory.
  void clear();

 private:
  struct Row {
    size_t begin = 0;
    size_t end = 0;
    int64_t line = 0;
    bool too_long = false;
  };
  std::string text_;
  std::vector<Row> rows_;
};

/// How a file is read.
struct RowStreamOptions {
  /// The flag that named the file, for messages.
  std::string flag = "--dataset";
  /// A block ends with the row with which it has so many bytes.
  int64_t block_bytes = int64_t{1} << 18;
  /// Longer rows are delivered without text, whatever the file unpacks to.
  int64_t max_row_bytes = int64_t{64} << 20;
};

/// Reads the rows of a file from its start to its end, once, in bounded memory however large the file is.
///
/// JSON Lines and JSON arrays, plain or packed by gzip (several members) or zstd (several frames), all
/// recognised by content. Lines end in \n alone (texts may hold U+2028 and the like); a \r before it, a byte
/// order mark at the start, blank lines and a missing end of the last line are tolerated. Rows are found, not
/// parsed: they may hold any bytes, but brackets and quotes in an array must match.
/// Memory:  block_bytes + max_row_bytes at most, plus 128 MiB for the largest zstd window that is allowed.
/// Throws:  ConfigError naming path and flag if it is not there; NotSupported for a folder, a pipe, csv,
///          parquet, tar and other packers, with what to do instead.
class APUS_API RowStream final {
 public:
  /// Opens the file and looks at its beginning.
  explicit RowStream(const DatasetSource& source, RowStreamOptions options = {});
  ~RowStream();
  RowStream(RowStream&& other) noexcept;
  RowStream& operator=(RowStream&& other) noexcept;

  /// Replaces `block` by the next rows; false, and an empty block, after the last one or the source's limit.
  /// Which rows come together depends on the rows alone.
  /// Throws:  DataError (after the rows before it have been delivered) where packed data is damaged or ends
  ///          early, with the byte of the file, or where an array is broken, with the line.
  bool next(RowBlock& block);

  /// The path as given, for messages.
  const std::string& name() const;
  /// Rows delivered so far.
  int64_t rows() const;
  /// Bytes of the file as it lies on disk that were read so far.
  int64_t read_bytes() const;
  /// Bytes of the file as it lies on disk.
  int64_t file_bytes() const;
  RowLayout layout() const;
  RowCompression compression() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace apus::data
