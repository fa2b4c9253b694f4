#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/data/rows.h"
#include "apus/data/rows_report.h"

namespace apus::data {

struct Batch;
struct CollateOptions;

/// Where a dataset came from, and what was left out.
struct APUS_API DatasetOrigin {
  /// Paths as they were given; RowPlace::file counts in them.
  std::vector<std::string> files = {};
  /// What became of every row that was read.
  RowReport report = {};
  /// Hash over the contents of the files and everything else that decides about the rows; equal on every
  /// machine.
  std::string fingerprint = {};
  /// Which rules were taken, for the log.
  std::string note = {};
  /// Rows that were read from each file; empty where rows come from no files.
  std::vector<int64_t> rows_read = {};
  /// Hash over the text of the rows that were read from each file, however it is packed; tells which file has
  /// changed where `fingerprint` has. Empty where rows come from no files.
  std::vector<std::string> file_fingerprints = {};
  /// One message for each file with rows of which none is usable. Preparing throws the first of them, unless
  /// it serves a look at the data (see RowReadOptions::none_usable).
  std::vector<std::string> unusable = {};
  /// Names of the channels that rows belong to, sorted; a subset keeps those of the whole.
  std::vector<std::string> channels = {};
};

/// Prepared rows: the seam between whatever reads text and the engine, which asks for batches by ordinal.
/// Sampler, StepPlan and Loader know no more of the data than this. Immutable once built.
/// Threads: const members may be called from several threads at once.
class APUS_API Dataset {
 public:
  virtual ~Dataset();

  /// Number of rows (pairs in DPO, packs once rows are packed): what the sampler orders.
  virtual int64_t size() const = 0;
  /// One micro-batch of the rows `ordinals`, in this order; none gives the empty batch (see collator.h).
  virtual Batch collate(std::span<const int64_t> ordinals, const CollateOptions& options) const = 0;
  /// Where a row came from.
  virtual RowPlace place(int64_t ordinal) const = 0;
  /// Tokens that the row adds to a batch, without padding: what it costs.
  virtual int64_t tokens(int64_t ordinal) const = 0;
  /// Rows (pairs in DPO) that stand behind an ordinal: 1, but for packs.
  virtual int64_t rows_in(int64_t ordinal) const;
  /// What attention over the row costs: the sum of the squares of its rows' tokens (see rows_in).
  virtual double squared_tokens(int64_t ordinal) const;
  /// Files, counts and fingerprint.
  virtual const DatasetOrigin& origin() const = 0;

  /// "file:line" of a row for messages; "row N" for rows made in memory.
  std::string place_text(int64_t ordinal) const;
};

/// Preference pairs.
/// Memory:  that of the table; in memory 4 bytes a token, about 100 bytes a row.
class APUS_API DpoDataset final : public Dataset {
 public:
  /// Takes the rows as they are: prepare_dpo makes ones that fit.
  explicit DpoDataset(std::vector<DpoRow> rows, DatasetOrigin origin = {});
  /// The table, which must not be null.
  explicit DpoDataset(std::shared_ptr<const RowTable<DpoRow>> rows, DatasetOrigin origin = {});
  ~DpoDataset() override;

  /// A copy of one of the pairs.
  DpoRow row(int64_t ordinal) const { return rows_->row(ordinal); }
  int64_t size() const override { return rows_->size(); }
  /// As collate_dpo does.
  Batch collate(std::span<const int64_t> ordinals, const CollateOptions& options) const override;
  RowPlace place(int64_t ordinal) const override { return rows_->place(ordinal); }
  int64_t tokens(int64_t ordinal) const override { return rows_->tokens(ordinal); }
  const DatasetOrigin& origin() const override { return origin_; }

 private:
  std::shared_ptr<const RowTable<DpoRow>> rows_;
  DatasetOrigin origin_;
};

/// Rows of token ids and labels.
/// Memory:  that of the table; in memory 8 bytes a token, about 100 bytes a row.
class APUS_API SftDataset final : public Dataset {
 public:
  /// Takes the rows as they are; the origin's channels are theirs.
  /// Throws:  ShapeError if a row's labels are not as long as its ids, or a row is empty.
  explicit SftDataset(std::vector<SftRow> rows, DatasetOrigin origin = {});
  /// The table, which must not be null.
  explicit SftDataset(std::shared_ptr<const RowTable<SftRow>> rows, DatasetOrigin origin = {});
  ~SftDataset() override;

  /// A copy of one of the texts.
  SftRow row(int64_t ordinal) const { return rows_->row(ordinal); }
  int64_t size() const override { return rows_->size(); }
  /// As collate_sft does.
  Batch collate(std::span<const int64_t> ordinals, const CollateOptions& options) const override;
  RowPlace place(int64_t ordinal) const override { return rows_->place(ordinal); }
  int64_t tokens(int64_t ordinal) const override { return rows_->tokens(ordinal); }
  const DatasetOrigin& origin() const override { return origin_; }

 private:
  std::shared_ptr<const RowTable<SftRow>> rows_;
  DatasetOrigin origin_;
};

/// Some rows of another dataset, in an order of their own. Its report counts the other rows as held out; for
/// rows made in memory, which no report counts, it is that of the whole dataset.
class APUS_API SubsetDataset final : public Dataset {
 public:
  /// Throws:  ShapeError if an ordinal is outside the dataset.
  SubsetDataset(std::shared_ptr<const Dataset> whole, std::vector<int64_t> ordinals);
  ~SubsetDataset() override;

  int64_t size() const override { return static_cast<int64_t>(ordinals_.size()); }
  /// The batch's ordinals are those of the subset; of packs, still those of their rows.
  Batch collate(std::span<const int64_t> ordinals, const CollateOptions& options) const override;
  RowPlace place(int64_t ordinal) const override;
  int64_t tokens(int64_t ordinal) const override;
  int64_t rows_in(int64_t ordinal) const override;
  double squared_tokens(int64_t ordinal) const override;
  const DatasetOrigin& origin() const override { return origin_; }

 private:
  int64_t inner(int64_t ordinal) const;

  std::shared_ptr<const Dataset> whole_;
  std::vector<int64_t> ordinals_;
  DatasetOrigin origin_;
};

/// A dataset cut in two.
struct APUS_API DatasetSplit {
  /// What is trained.
  std::shared_ptr<const Dataset> train;
  /// What is kept for evaluation.
  std::shared_ptr<const Dataset> held_out;
};

/// How a dataset is cut.
struct DatasetSplitOptions {
  /// Share of the rows that is held out: max(1, floor(rows x ratio)) rows.
  double ratio = 0.01;
  /// Which rows they are depends on seed and number of rows alone.
  uint64_t seed = 42;
};

/// Holds rows out for evaluation. Both parts keep the order of the dataset.
/// Throws:  ConfigError if the ratio is not between 0 and 1, or no row would be left to train.
APUS_API DatasetSplit split_dataset(std::shared_ptr<const Dataset> dataset,
                                    const DatasetSplitOptions& options);

}  // namespace apus::data
