#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apus/base/error.h"
#include "apus/base/hash.h"
#include "apus/base/log.h"
#include "apus/data/dataset.h"
#include "apus/data/jsonl.h"
#include "apus/data/prepare.h"

namespace apus::data {

/// A row that can be used, or why not; one of the two.
template <typename Row>
struct RowOutcome {
  Row row = {};
  bool truncated = false;
  std::optional<RowProblem> problem = {};
};

/// Calls `work(i)` for 0 <= i < count on `workers` threads, and returns when all are done. If calls throw,
/// the exception of the smallest i is thrown.
void run_in_parallel(int64_t count, int64_t workers, const std::function<void(int64_t)>& work);

/// The files as `options` names them, opened; their names go into `origin`, their bytes and the limits into
/// `hash`. Logs where a FILE#N has fewer rows.
std::vector<JsonlFile> open_files(const RowReadOptions& options, DatasetOrigin& origin, Hash64& hash,
                                  Logger& logger);

/// Logs the counts. Throws DataError if no row is left.
void finish_report(const RowReadOptions& options, const DatasetOrigin& origin, Logger& logger);

/// Adds a number to a fingerprint.
inline void add_number(Hash64& hash, int64_t number) {
  hash.update(std::to_string(number) + ";");
}

/// Adds a text to a fingerprint, so that two texts one after another cannot be taken for another pair.
inline void add_text(Hash64& hash, std::string_view text) {
  add_number(hash, static_cast<int64_t>(text.size()));
  hash.update(text);
}

/// Adds token ids to a fingerprint.
inline void add_ids(Hash64& hash, const std::vector<int32_t>& ids) {
  add_number(hash, static_cast<int64_t>(ids.size()));
  hash.update(std::as_bytes(std::span(ids)));
}

/// How `make_rows` turns a line into a row; may throw RowRefused.
template <typename Row>
using RowMaker = std::function<RowOutcome<Row>(std::string_view)>;

/// One row; a refusal is put into the outcome, or under `strict` thrown with its place.
template <typename Row>
RowOutcome<Row> make_row(const JsonlFile& file, int64_t index, bool strict, const RowMaker<Row>& make) {
  try {
    return make(file.row(index));
  } catch (const RowRefused& refused) {
    if (strict) throw DataError(file.name(), file.line(index), refused.what());
    return {.problem = refused.problem()};
  } catch (const NotSupported& error) {
    throw NotSupported(file.name() + ":" + std::to_string(file.line(index)) + ": " + error.what());
  }
}

/// Counts an outcome, and appends its row if there is one.
template <typename Row>
void collect(RowOutcome<Row>&& outcome, const std::string& file, RowPlace place, std::vector<Row>& rows,
             RowReport& report) {
  if (outcome.problem) return report.add_dropped(file, place.line, *outcome.problem);
  outcome.truncated ? report.add_truncated() : report.add_whole();
  outcome.row.place = place;
  rows.push_back(std::move(outcome.row));
}

/// Turns every row of the files into tokens by `make`, and counts what became of them. Rows keep their order;
/// the result does not depend on `workers`.
/// Throws:  DataError for the first bad row under `strict`; what else `make` throws, for the first row.
template <typename Row>
std::vector<Row> make_rows(const std::vector<JsonlFile>& files, const RowReadOptions& options,
                           int64_t workers, const RowMaker<Row>& make, RowReport& report) {
  constexpr int64_t kBlock = 4096;  // bounds what is done in vain where strict stops
  std::vector<Row> rows;
  for (size_t f = 0; f < files.size(); ++f) {
    const JsonlFile& file = files[f];
    for (int64_t begin = 0; begin < file.size(); begin += kBlock) {
      std::vector<RowOutcome<Row>> block(static_cast<size_t>(std::min(kBlock, file.size() - begin)));
      run_in_parallel(static_cast<int64_t>(block.size()), workers, [&](int64_t i) {
        block[static_cast<size_t>(i)] = make_row<Row>(file, begin + i, options.strict, make);
      });
      int64_t index = begin;
      for (auto& outcome : block)
        collect(std::move(outcome), file.name(), {static_cast<int32_t>(f), file.line(index++)}, rows, report);
    }
  }
  return rows;
}

}  // namespace apus::data
