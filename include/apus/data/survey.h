#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "apus/base/api.h"
#include "apus/data/balance.h"
#include "apus/data/dataset.h"
#include "apus/data/sampler.h"

namespace apus::data {

class Tokenizer;
struct RowReadOptions;

// What can be said about prepared rows before anything is trained on them.

/// What a file gave.
struct FileCounts {
  /// The path as given.
  std::string file;
  /// Rows in it, up to its limit.
  int64_t read = 0;
  /// Trained as they are.
  int64_t whole = 0;
  /// Trained after a cut to max_length.
  int64_t truncated = 0;
  /// Could be trained, but stand in the other part of a split.
  int64_t held_out = 0;
  /// Left out, for any reason.
  int64_t dropped = 0;
};

/// The counts of each file. A dataset that does not know how many rows were read (DatasetOrigin::rows_read)
/// has its files looked through once more. Throws:  as RowStream, then.
APUS_API std::vector<FileCounts> count_files(const Dataset& dataset, const RowReadOptions& options);

/// The same where no row can be used: every row counts as dropped.
/// Throws:  as RowStream.
APUS_API std::vector<FileCounts> count_unusable_files(const RowReadOptions& options);

/// The counts once a part of the rows is trained; the others are held out. `whole` are those of all rows.
APUS_API std::vector<FileCounts> counts_of_part(std::vector<FileCounts> whole, const Dataset& part);

/// Tokens of a row, sequence by sequence.
struct RowLengths {
  /// The text; of a pair prompt and chosen answer.
  int64_t first = 0;
  /// Of a pair prompt and rejected answer; 0 = the row has one sequence.
  int64_t second = 0;
  /// Tokens that are trained, over both.
  int64_t trained = 0;

  /// Of both sequences.
  int64_t tokens() const { return first + second; }
  friend bool operator==(const RowLengths&, const RowLengths&) = default;
};

/// The lengths of all rows. A token at the start of a sequence, which nothing predicts, is not trained.
/// Memory:  24 bytes a row.
APUS_API std::vector<RowLengths> measure_rows(const DpoDataset& dataset);
/// As above.
APUS_API std::vector<RowLengths> measure_rows(const SftDataset& dataset);

/// Sequences of nearly equal length.
struct LengthBin {
  int64_t begin = 0;  ///< shortest length
  int64_t end = 0;    ///< one more than the longest
  int64_t count = 0;  ///< sequences
  friend bool operator==(const LengthBin&, const LengthBin&) = default;
};

/// Lengths of sequences (of a pair both), in tokens.
struct APUS_API LengthSummary {
  int64_t sequences = 0;
  int64_t tokens = 0;
  /// Of these, trained ones.
  int64_t trained_tokens = 0;
  int64_t shortest = 0;
  int64_t longest = 0;
  /// (50, l): half of the sequences have l tokens or fewer. For 50, 75, 90, 95 and 99.
  std::vector<std::pair<int, int64_t>> percentiles = {};
  /// From 0 to the longest, at most 16 bins of a width that is a power of two.
  std::vector<LengthBin> histogram = {};

  /// tokens / sequences; 0 without any.
  double mean() const;
  /// trained_tokens / tokens; 0 without any.
  double trained_share() const;
};

/// Puts lengths together.
APUS_API LengthSummary summarize_lengths(std::span<const RowLengths> rows);

/// Neighbouring tokens of equal weight.
struct SampleRun {
  /// What each counts in the loss; 0 = not trained.
  float weight = 0;
  /// How many there are.
  int64_t tokens = 0;
  /// Decoded by themselves.
  std::string text;
};

/// A row as the engine sees it.
struct RowSample {
  /// "file:line".
  std::string place;
  /// Its sequences ("text"; of a pair "chosen", "rejected"), cut where the weight changes.
  std::vector<std::pair<std::string, std::vector<SampleRun>>> sequences = {};
};

/// The first rows, decoded.
APUS_API std::vector<RowSample> sample_rows(const DpoDataset& dataset, const Tokenizer& tokenizer,
                                            int64_t count);
/// As above.
APUS_API std::vector<RowSample> sample_rows(const SftDataset& dataset, const Tokenizer& tokenizer,
                                            int64_t count);

/// How an epoch is cut into batches.
struct BatchSurveyOptions {
  StepPlan plan;
  Sampler sampler;
  /// As LoaderOptions::balance.
  std::optional<CostModel> balance = {};
};

/// What the first epoch's batches hold, over all ranks.
struct APUS_API BatchSurvey {
  /// Rows, or packs, that the plan takes.
  int64_t rows = 0;
  int64_t steps = 0;
  int64_t micro_batches = 0;
  int64_t tokens = 0;
  /// Tokens with padding: in a micro-batch every sequence is as long as the longest.
  int64_t padded_tokens = 0;
  /// The most padded tokens of one micro-batch.
  int64_t largest_padded = 0;
  /// The most tokens of one micro-batch without padding.
  int64_t largest = 0;

  /// Share of the padded tokens that are padding; 0 without any.
  double padding_share() const;
};

/// Goes through the first epoch. `rows` are the lengths of the dataset's rows by ordinal; empty for packs,
/// whose rows are never padded (padded_tokens is tokens then).
/// Throws:  ShapeError if there are not as many lengths as rows; ConfigError if plan, sampler and dataset
///          disagree about the number of rows.
APUS_API BatchSurvey survey_batches(const Dataset& dataset, std::span<const RowLengths> rows,
                                    const BatchSurveyOptions& options);

/// The lengths of a part's rows, found by their places among those of the whole dataset.
/// Throws:  ShapeError if the part holds a row that the whole does not, or orders them differently.
APUS_API std::vector<RowLengths> lengths_of_part(const Dataset& part, const Dataset& whole,
                                                 std::span<const RowLengths> lengths);

}  // namespace apus::data
