#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "apus/data/columns.h"
#include "apus/data/data_task.h"
#include "apus/data/dataset.h"
#include "apus/data/prepare.h"
#include "apus/data/rows.h"
#include "apus/data/streamed_rows.h"

namespace apus {
class Logger;
}

namespace apus::data {

/// What preparing one kind of rows needs beside the files.
template <typename Row>
struct RowsPlan {
  RowEncode<Row> encode;
  /// Threads that encode.
  int64_t workers = 1;
  /// Which rule was taken, for the log; gets the text of the first row that is used.
  std::function<std::string(std::string_view)> note;
  /// What decides about the rows beside files and tokenizer: part of fingerprint and cache key.
  nlohmann::json options;
  /// More fields of the cache key.
  nlohmann::json key_only = nlohmann::json::object();
  /// Why these rows cannot be taken from a cache, if so.
  std::optional<std::string> not_cached = {};
  /// What `encode` renames, for messages about it.
  ColumnMap columns = {};
  /// What `encode` trains, for messages about rows of another shape.
  DataTask task = DataTask::kDpo;
};

/// Rows in a mapped file, and all that is known about them.
template <typename Row>
struct PreparedRows {
  std::shared_ptr<const RowTable<Row>> table;
  DatasetOrigin origin;
};

/// Takes the rows from the cache; else encodes every row of the files on worker threads and streams them into
/// a file, in the cache or without a name. Logs the same lines either way, and one that says where the rows
/// are.
/// Memory:  64 MiB of text that is read ahead and what becomes of it; nothing that grows with the files.
/// Throws:  DataError for a damaged file, for the first bad row in file order under `strict`, or if no row is
///          left; what else `encode` throws, for the first row; FileError if no file can be written.
template <typename Row>
PreparedRows<Row> prepare_rows(const RowReadOptions& options, const RowsPlan<Row>& plan, Logger& logger);

}  // namespace apus::data
