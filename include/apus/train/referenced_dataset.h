#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "apus/base/api.h"
#include "apus/data/batch.h"
#include "apus/data/dataset.h"
#include "apus/train/reference_cache.h"

namespace apus::train {

/// Preference pairs whose batches carry what the reference says of them (Batch::reference_log_probs_S).
///
/// Wraps the dataset that is trained or evaluated, packs and subsets too: a batch's pairs are looked up by
/// Batch::ordinals. Each pair's tokens are compared with those that the reference saw.
class APUS_API ReferencedDataset final : public data::Dataset {
 public:
  /// Throws: ShapeError if the table has not one entry a pair.
  ReferencedDataset(std::shared_ptr<const data::Dataset> rows, std::shared_ptr<const ReferenceTable> table);
  ~ReferencedDataset() override;

  int64_t size() const override { return rows_->size(); }
  /// Throws: DataError naming the row if it is not the one that the reference saw.
  data::Batch collate(std::span<const int64_t> ordinals, const data::CollateOptions& options) const override;
  data::RowPlace place(int64_t ordinal) const override { return rows_->place(ordinal); }
  int64_t tokens(int64_t ordinal) const override { return rows_->tokens(ordinal); }
  int64_t rows_in(int64_t ordinal) const override { return rows_->rows_in(ordinal); }
  double squared_tokens(int64_t ordinal) const override { return rows_->squared_tokens(ordinal); }
  const data::DatasetOrigin& origin() const override { return rows_->origin(); }

  const ReferenceTable& table() const { return *table_; }

 private:
  std::shared_ptr<const data::Dataset> rows_;
  std::shared_ptr<const ReferenceTable> table_;
};

/// XXH64 of each pair of a micro-batch: its tokens, and which of them are scored. Padding does not count.
/// Throws: ConfigError for single texts, and for prompts kept once.
APUS_API std::vector<uint64_t> pair_hashes(const data::Batch& batch);

/// Pairs of a dataset: the sum of rows_in.
APUS_API int64_t pairs_in(const data::Dataset& dataset);

}  // namespace apus::train
