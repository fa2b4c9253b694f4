#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "apus/base/api.h"
#include "apus/data/dataset.h"

namespace apus::data {

/// How rows are packed.
struct PackingOptions {
  /// `--packing_length`: tokens of a pack, at most. A pair counts with both of its sequences.
  int64_t packing_length = 0;
  /// `--max_length` of the rows; 0 = they have no bound. Refused if it is above packing_length.
  int64_t max_length = 0;
  /// `--data_seed`: which rows come near each other.
  uint64_t seed = 42;
  /// False: neighbours in the files come near each other.
  bool shuffle = true;
  /// Rows that are packed together. Larger fills better and costs more time and memory while packing.
  int64_t window = 10'000;
};

/// What packing made of the rows.
struct APUS_API PackingReport {
  /// Packed (pairs in DPO).
  int64_t rows = 0;
  int64_t packs = 0;
  /// Of all rows.
  int64_t tokens = 0;
  /// Rows longer than packing_length (pairs can be: only each of their sequences is bounded by max_length).
  /// They are not cut; each is a pack of its own.
  int64_t oversized = 0;
  /// Sum over packs of packing_length, or of its tokens where they are more.
  int64_t capacity = 0;

  /// tokens / capacity, between 0 and 1; without oversized rows tokens / (packs x packing_length).
  double efficiency() const;
  friend bool operator==(const PackingReport&, const PackingReport&) = default;
};

/// Another dataset's rows (pairs in DPO) in packs: an ordinal is a pack of whole rows, so a micro-batch of n
/// "rows" is n packs. Rows in a pack do not see each other; in the loss each counts as if it stood alone.
///
/// The rows are taken in an order given by the seed, `window` at a time; in a window the longest row comes
/// first and joins the fullest pack that has room (best fit, decreasing). The packs are a function of the
/// rows' token counts and of PackingOptions; world, workers and epoch have no part in it: an epoch shuffles
/// packs as it would shuffle rows, so that all epochs have equally many steps. Split off held-out rows before
/// packing.
/// Complexity:  O(n log window).
/// Memory:      8 bytes a row and 16 bytes a pack; while packing, 8 bytes a row and about 100 bytes x window.
/// Determinism: bitwise, on every machine.
class APUS_API PackedDataset final : public Dataset {
 public:
  /// Throws:  ConfigError if packing_length is not positive or below max_length, max_length is negative, or
  ///          the window is not positive.
  PackedDataset(std::shared_ptr<const Dataset> rows, const PackingOptions& options);
  ~PackedDataset() override;

  /// Number of packs.
  int64_t size() const override { return report_.packs; }
  /// One micro-batch of the rows of these packs, pack by pack; Batch::ordinals are those of the rows.
  Batch collate(std::span<const int64_t> ordinals, const CollateOptions& options) const override;
  /// Where the pack's first row came from.
  RowPlace place(int64_t ordinal) const override;
  int64_t tokens(int64_t ordinal) const override;
  int64_t rows_in(int64_t ordinal) const override;
  double squared_tokens(int64_t ordinal) const override;
  /// That of the rows; the fingerprint covers the packing too, the note says how full the packs are.
  const DatasetOrigin& origin() const override { return origin_; }

  /// Ordinals in the inner dataset of the rows of a pack.
  /// Throws:  ShapeError if there is no such pack.
  std::span<const int64_t> rows_of(int64_t pack) const;
  const PackingReport& report() const { return report_; }

 private:
  void add_window(std::span<const int64_t> ordinals, int64_t packing_length);

  std::shared_ptr<const Dataset> rows_;
  PackingReport report_;
  std::vector<int64_t> ordinals_;  // of all rows, pack by pack
  std::vector<int64_t> begins_;    // [packs + 1] into ordinals_
  std::vector<int64_t> tokens_;    // of each pack
  DatasetOrigin origin_;
};

}  // namespace apus::data
