// The one part of PackedDataset that makes tensors; packing itself needs none.
#include "apus/data/batch.h"
#include "apus/data/packing.h"

namespace apus::data {

Batch PackedDataset::collate(std::span<const int64_t> ordinals, const CollateOptions& options) const {
  std::vector<int64_t> rows;
  for (const int64_t pack : ordinals) {
    const std::span<const int64_t> inside = rows_of(pack);
    rows.insert(rows.end(), inside.begin(), inside.end());
  }
  return rows_->collate(rows, options);
}

}  // namespace apus::data
