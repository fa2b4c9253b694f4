#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/api.h"
#include "apus/base/file.h"

namespace apus::data {

/// A file as `--dataset` names it.
struct APUS_API DatasetSource {
  /// The file.
  std::filesystem::path path;
  /// Only the first so many rows; none = all.
  std::optional<int64_t> limit = {};

  /// The name as it was given.
  std::string text() const;
};

/// Reads "FILE" or "FILE#N". A '#' that is part of an existing file's name is left in it.
/// Throws:  ConfigError if N is not a positive whole number; `flag` is named in the message.
APUS_API DatasetSource parse_dataset_source(std::string_view text, std::string_view flag = "--dataset");

/// The lines of a JSON Lines file that are not blank, as views into the mapped file.
///
/// Lines end in \n alone (texts may hold U+2028 and the like); a \r before it, a byte order mark at the start
/// and a missing end of the last line are tolerated. Nothing is parsed here, so lines may hold any bytes.
/// Movable; the views live as long as the object.
/// Memory:  24 bytes a row.
class APUS_API JsonlFile final {
 public:
  /// Maps the file and finds its lines.
  /// Throws:  DataError naming path and `flag` if there is no such file; NotSupported for a folder, a
  ///          compressed file, a .json array, csv or parquet, with what to do instead.
  explicit JsonlFile(const DatasetSource& source, std::string_view flag = "--dataset");

  /// Rows: lines that are not blank, at most the source's limit.
  int64_t size() const { return static_cast<int64_t>(rows_.size()); }
  /// Text of a row.
  std::string_view row(int64_t index) const;
  /// 1-based line of a row in the file.
  int64_t line(int64_t index) const;
  /// Whether the file had at least as many rows as the source's limit asks for.
  bool limit_reached() const { return !limit_ || size() == *limit_; }
  /// The path as given, for messages.
  const std::string& name() const { return name_; }
  /// The bytes up to and including the last row: what a fingerprint must cover.
  std::string_view used_bytes() const;

 private:
  struct Row {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t line = 0;
  };
  std::string name_;
  std::optional<int64_t> limit_;
  MappedFile file_;
  std::vector<Row> rows_;
};

}  // namespace apus::data
