#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/data/dataset.h"
#include "apus/data/dpo_rows.h"
#include "apus/data/sft_rows.h"

namespace apus {
class Clock;
class Logger;
}  // namespace apus

namespace apus::data {

class Tokenizer;

/// What preparing any kind of rows asks.
struct RowReadOptions {
  /// "FILE" or "FILE#N" (the first N rows), in order; relative paths count from the working directory. Any
  /// file that row_stream.h reads.
  std::vector<std::string> files = {};
  /// The flag that named the files, for messages.
  std::string flag = "--dataset";
  /// Longest sequence; none = no bound.
  std::optional<int64_t> max_length = {};
  /// What becomes of longer rows.
  Truncation truncation = Truncation::kDelete;
  /// Stop at the first bad row (in file order) instead of counting it.
  bool strict = false;
  /// Where prepared rows are kept for the next run and for the other ranks of the host (in its sub-folder
  /// `rows`; base/env.h has the usual folder). None: a nameless file in the system's folder for temporary
  /// ones. Performance only: the rows are the same.
  std::optional<std::filesystem::path> cache_folder = {};
  /// Once a new entry is written, those used least recently go until all together take no more than this.
  int64_t max_cache_bytes = int64_t{64} << 30;
  /// Says when progress is reported; nullptr: the machine's clock. Must live as long as the call.
  const Clock* clock = nullptr;
  /// For a look at the data, which reports what is wrong with it. Receives the counts before "no usable row"
  /// is thrown; a file without a usable row beside good ones is then no error (DatasetOrigin::unusable).
  std::optional<RowReport>* none_usable = nullptr;
};

/// What preparing preference rows asks.
struct DpoPrepareOptions {
  RowReadOptions read = {};
  DpoEncodeOptions encode = {};
  /// Threads that tokenise. Performance only: the result does not depend on it.
  int64_t workers = 1;
};

/// Reads and tokenises preference rows.
///
/// Every row is encoded once, on worker threads, and streamed into a file, which is then mapped: neither text
/// nor tokens are held in memory. With a cache_folder the file is kept there under a key of the files' bytes,
/// the tokenizer's, template, options and versions; the next run and the other ranks of a host map it too:
/// one of them prepares, the others wait for its lock. An entry that is damaged or of another version is
/// prepared anew. A folder that cannot be used is a warning, and a nameless file takes its place. Where a
/// template asks for the day, rows are cached for the day; where it asks for the time of day, not at all.
///
/// Logs progress every few seconds, a warning for a FILE#N with fewer rows, one line of counts and one for
/// each kind of dropped rows; the same lines whether rows are prepared or come from the cache, which one more
/// says. Rows keep the order of the files. The fingerprint covers the text of the rows read, the tokens of
/// those used, template and options, but neither paths nor how a file is packed, threads or caches. Memory:
/// 64 MiB of text that is read ahead and what becomes of it, however large the files; afterwards none.
/// Throws:  DataError: a file is damaged, a bad row under `strict` (file:line:
///          message), or no usable row in a file that has rows (with the first reason and the command that
///          takes such rows); ConfigError: a file is missing (names path and flag); NotSupported for files or
///          templates that this build lacks; ConfigError for options that do not fit; FileError if rows can
///          be written nowhere.
APUS_API std::shared_ptr<const DpoDataset> prepare_dpo(const TokenizerFolder& tokenizer,
                                                       const DpoPrepareOptions& options, Logger& logger);

/// What preparing texts and conversations asks.
struct SftPrepareOptions {
  RowReadOptions read = {};
  SftEncodeOptions encode = {};
  /// Threads that tokenise. Performance only: the result does not depend on it.
  int64_t workers = 1;
};

/// Reads and tokenises rows for SFT and pre-training (see SftEncoder), as prepare_dpo does. Logs the
/// encoder's warnings, too. Throws:  as prepare_dpo.
APUS_API std::shared_ptr<const SftDataset> prepare_sft(const TokenizerFolder& tokenizer,
                                                       const SftPrepareOptions& options, Logger& logger);

/// What preparing rows of token ids asks.
struct TokenRowsPrepareOptions {
  RowReadOptions read = {};
  /// Ids must be below it: the rows of the embedding. None = any id that is not negative.
  std::optional<int64_t> vocab_size = {};
  /// Threads that read. Performance only: the result does not depend on it.
  int64_t workers = 1;
};

/// Reads rows that are tokens already, as prepare_dpo does: {"input_ids": [...], "labels": [...]}, labels of
/// -100 being not trained, and a "channel", if there is one. A row without a trained token is dropped.
/// Throws:  as prepare_dpo.
APUS_API std::shared_ptr<const SftDataset> prepare_token_rows(const TokenRowsPrepareOptions& options,
                                                              Logger& logger);

/// The first pair as the engine sees it, for the log: ids and decoded text of both sequences, their labels
/// with "[-100 * n]" for tokens that are not trained, and which rule made tokens of it.
APUS_API std::string describe_first_pair(const DpoDataset& dataset, const Tokenizer& tokenizer);

/// The first row in the same way; its channel follows if it has one, and runs of equal weight where tokens
/// weigh something else than 1.
APUS_API std::string describe_first_row(const SftDataset& dataset, const Tokenizer& tokenizer);

}  // namespace apus::data
