#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "apus/base/api.h"
#include "apus/nn/pass_context.h"
#include "apus/ops/dropout.h"

namespace apus::nn {

/// What a trainer knows of a micro-batch's random numbers.
struct APUS_API DropoutSource {
  /// The run's seed.
  uint64_t seed = 42;
  int64_t epoch = 0;
  /// How many rows stand before each row of the micro-batch in the epoch's order: data::Batch::places. Empty:
  /// a micro-batch without rows.
  std::vector<int64_t> places = {};
};

/// Dropout of one pass: every token row's coordinates, and the seed that keys each layer's mask with its
/// path. Immutable and shared by every block; without one (PassContext::dropout null) a pass drops nothing.
struct APUS_API DropoutRows {
  uint64_t seed = 0;
  /// [T]
  std::shared_ptr<const ops::SampleRows> rows;
};

/// The coordinates of a micro-batch: row t of sequence s draws at (epoch, place of s, side of s, its position
/// in the sequence), so that micro-batch, padding, packing and world do not change a mask.
///
/// As many sequences as places: each is a row (SFT), side 0. Twice as many: all chosen answers, then all
/// rejected ones (DPO), sides 0 and 1. A trainer sets it before the forward:
///     context.dropout = nn::dropout_rows(*batch.layout, {.seed = seed, .epoch = epoch, .places =
///     batch.places});
/// and leaves it null in evaluation, for a reference, and in DPO unless disable_dropout is off.
/// Throws:  ShapeError if sequences and places do not fit, a place is negative or beyond 32 bits, or the
/// epoch
///          is not in [0, 2^31); NotSupported for prompts that several answers share (the answers' masks on
///          the prompt differ).
APUS_API std::shared_ptr<const DropoutRows> dropout_rows(const RowLayout& layout,
                                                         const DropoutSource& source);

/// The coordinates of some rows, so that these meet the masks that they meet among all.
/// Shapes:  rows int64 [M] on the CPU -> M rows.
/// Throws:  ShapeError if there is no such row.
APUS_API std::shared_ptr<const DropoutRows> dropout_at(const DropoutRows& all, const at::Tensor& rows_M);

}  // namespace apus::nn
