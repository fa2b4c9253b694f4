#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apus/data/prepare.h"
#include "apus/data/row_stream.h"

namespace apus {
class Logger;
}

namespace apus::data {

/// Rows of one of several files.
struct FileBlock {
  int32_t file = 0;
  /// 1-based number of the first row in the file's array; 0 where the file is none, and lines tell enough.
  int64_t first_element = 0;
  RowBlock rows;
};

/// The rows of the files that options name, one file after another.
class RowFiles final {
 public:
  /// Looks into every file, so that a wrong name ends a run before hours of work.
  /// Throws:  ConfigError for options that do not fit; as RowStream does.
  explicit RowFiles(const RowReadOptions& options);

  /// The next rows; none after the last.
  std::optional<FileBlock> next();

  const std::vector<DatasetSource>& sources() const { return sources_; }
  /// Paths as they were given.
  std::vector<std::string> names() const;
  /// Rows read from each file so far.
  const std::vector<int64_t>& rows_read() const { return rows_read_; }
  /// Share of the files' bytes that was read.
  double share_read() const;
  /// About how many bytes of text the rows have, rather more.
  int64_t text_bytes() const { return text_bytes_; }

 private:
  RowStreamOptions stream_options() const { return {.flag = flag_}; }

  std::string flag_;
  std::vector<DatasetSource> sources_;
  std::vector<int64_t> rows_read_;
  std::optional<RowStream> current_;
  int32_t file_ = -1;
  int64_t bytes_before_ = 0;
  int64_t all_bytes_ = 0;
  int64_t text_bytes_ = 0;
};

/// Warns of each FILE#N with fewer rows than N.
void warn_of_short_files(const RowReadOptions& options, const std::vector<int64_t>& rows_read,
                         Logger& logger);

}  // namespace apus::data
