#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "apus/base/api.h"
#include "apus/data/prepare.h"
#include "apus/data/row_notes.h"
#include "apus/data/rows.h"
#include "apus/data/rows_report.h"
#include "apus/data/shuffle_buffer.h"

namespace apus::data {

/// A row in tokens, whether it was cut to max_length, and what should be known about it.
template <typename Row>
struct EncodedRow {
  Row row = {};
  bool truncated = false;
  RowNotes notes = {};
};

/// Makes tokens of the text of one row. Called from several threads at once; throws RowRefused for a row that
/// cannot be used.
template <typename Row>
using RowEncode = std::function<EncodedRow<Row>(std::string_view)>;

/// How rows are streamed.
struct StreamedRowsOptions {
  /// Files and strictness; max_length, truncation and the cache play no part here.
  RowReadOptions read = {};
  /// Threads that encode. Performance only: the order and the rows do not depend on it.
  int64_t workers = 1;
  /// A capacity of 1 keeps the order of the files.
  ShuffleBufferOptions shuffle = {};
};

/// The rows of files that may be larger than memory and disk caches, one after another, encoded on worker
/// threads and shuffled in a bounded buffer.
///
/// What comes out is a function of the files' rows, `encode`, seed, epoch and buffer size, not of workers or
/// timing. The first error in the order of the files is thrown, once the rows before it have gone into the
/// buffer.
/// Memory:  the shuffle buffer's rows + 64 MiB of text that is read ahead; nothing grows with the files.
template <typename Row>
class APUS_API StreamedRows final {
 public:
  /// Opens the files. Throws:  ConfigError, DataError, NotSupported as RowStream does.
  StreamedRows(StreamedRowsOptions options, RowEncode<Row> encode);
  ~StreamedRows();

  /// The next row; none after the last.
  /// Throws:  DataError for damaged files, or a bad row under `strict`.
  std::optional<Row> next();

  /// What became of the rows that have been read so far.
  const RowReport& report() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Streams preference pairs, encoded and cut as prepare_dpo does; `options.encode.clock` must outlive it.
APUS_API std::unique_ptr<StreamedRows<DpoRow>> stream_dpo(const TokenizerFolder& tokenizer,
                                                          const DpoPrepareOptions& options,
                                                          const ShuffleBufferOptions& shuffle);

/// Streams texts, encoded and cut as prepare_sft does; `options.encode.clock` must outlive it.
APUS_API std::unique_ptr<StreamedRows<SftRow>> stream_sft(const TokenizerFolder& tokenizer,
                                                          const SftPrepareOptions& options,
                                                          const ShuffleBufferOptions& shuffle);

}  // namespace apus::data
