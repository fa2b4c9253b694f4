#include "apus/train/referenced_dataset.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/hash.h"

namespace apus::train {
namespace {

/// Supervised tokens of each answer.
std::vector<int64_t> target_counts(const data::Batch& batch) {
  std::vector<int64_t> counts(static_cast<size_t>(2 * batch.pairs), 0);
  const int64_t* const answers = batch.target_sequences_M.const_data_ptr<int64_t>();
  for (int64_t target = 0; target < batch.target_count(); ++target)
    ++counts[static_cast<size_t>(answers[target])];
  return counts;
}

}  // namespace

std::vector<uint64_t> pair_hashes(const data::Batch& batch) {
  if (batch.is_empty()) return {};
  APUS_CHECK(batch.pairs > 0 && batch.layout->batch() == 2 * batch.pairs, ConfigError,
             "reference log-probabilities are of preference pairs, each answer a sequence of its own");
  const std::vector<int64_t> counts = target_counts(batch);
  const int64_t* const tokens = batch.tokens_T.const_data_ptr<int64_t>();
  std::vector<uint64_t> hashes;
  for (int64_t pair = 0; pair < batch.pairs; ++pair) {
    Hash64 hash;
    for (const int64_t answer : {pair, batch.pairs + pair}) {
      const auto length = static_cast<size_t>(batch.layout->lengths[static_cast<size_t>(answer)]);
      const uint64_t head[] = {length, static_cast<uint64_t>(counts[static_cast<size_t>(answer)])};
      hash.update(std::as_bytes(std::span(head)));
      hash.update(std::as_bytes(std::span(tokens + batch.layout->first_row(answer), length)));
    }
    hashes.push_back(hash.digest());
  }
  return hashes;
}

int64_t pairs_in(const data::Dataset& dataset) {
  int64_t pairs = 0;
  for (int64_t ordinal = 0; ordinal < dataset.size(); ++ordinal) pairs += dataset.rows_in(ordinal);
  return pairs;
}

ReferencedDataset::ReferencedDataset(std::shared_ptr<const data::Dataset> rows,
                                     std::shared_ptr<const ReferenceTable> table)
    : rows_(std::move(rows)), table_(std::move(table)) {
  const int64_t pairs = pairs_in(*rows_);
  APUS_CHECK(table_->size() == pairs && table_->chosen.size() == table_->row_hashes.size() &&
                 table_->rejected.size() == table_->row_hashes.size(),
             ShapeError, "the reference log-probabilities are of ", table_->size(),
             " pairs, the dataset has ", pairs);
}

ReferencedDataset::~ReferencedDataset() = default;

data::Batch ReferencedDataset::collate(std::span<const int64_t> ordinals,
                                       const data::CollateOptions& options) const {
  data::Batch batch = rows_->collate(ordinals, options);
  if (batch.is_empty()) return batch;
  const std::vector<uint64_t> hashes = pair_hashes(batch);
  batch.reference_log_probs_S = at::empty({2 * batch.pairs}, at::kFloat);
  float* const values = batch.reference_log_probs_S.mutable_data_ptr<float>();
  for (size_t pair = 0; pair < hashes.size(); ++pair) {
    const auto row = static_cast<size_t>(batch.ordinals.at(pair));
    if (row >= table_->row_hashes.size() || table_->row_hashes[row] != hashes[pair])
      throw DataError(detail::concat("pair ", row), 0,
                      "is not the one that the reference log-probabilities were computed of");
    values[pair] = table_->chosen[row];
    values[pair + hashes.size()] = table_->rejected[row];
  }
  return batch;
}

}  // namespace apus::train
