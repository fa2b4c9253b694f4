#include "apus/nn/dropout_rows.h"

#include <limits>
#include <span>
#include <utility>

#include "apus/base/error.h"

namespace apus::nn {
namespace {

uint32_t checked_place(int64_t place) {
  APUS_CHECK(place >= 0 && place <= std::numeric_limits<uint32_t>::max(), ShapeError, "dropout: place ",
             place, " of a row in its epoch is not in [0, 2^32)");
  return static_cast<uint32_t>(place);
}

/// How many sequences there are a row: 1, or chosen and rejected.
int64_t sides_of(const RowLayout& layout, const std::vector<int64_t>& places) {
  APUS_CHECK(
      layout.prefixes.empty(), NotSupported,
      "dropout does not work with prompts that several answers share, whose masks on the prompt differ; "
      "lay the answers out whole (BatchLayout::kPadded or kPacked)");
  const auto rows = static_cast<int64_t>(places.size());
  if (rows == 0) return 1;
  const bool fits = layout.batch() == rows || layout.batch() == 2 * rows;
  APUS_CHECK(fits, ShapeError, "dropout: ", layout.batch(), " sequences have ", rows,
             " places in the epoch, expected one a sequence, or one for a chosen and a rejected one");
  return layout.batch() / rows;
}

}  // namespace

std::shared_ptr<const DropoutRows> dropout_rows(const RowLayout& layout, const DropoutSource& source) {
  APUS_CHECK(source.epoch >= 0 && source.epoch <= std::numeric_limits<int32_t>::max(), ShapeError,
             "dropout: the epoch ", source.epoch, " is not in [0, 2^31)");
  const int64_t sides = sides_of(layout, source.places);
  const int64_t rows_a_side = layout.batch() / sides;
  auto rows = std::make_shared<ops::SampleRows>();
  rows->epoch = static_cast<uint32_t>(source.epoch);
  const auto count = static_cast<size_t>(layout.rows());
  rows->ordinals.reserve(count);
  rows->sides.reserve(count);
  rows->positions.reserve(count);
  const int64_t* positions = layout.positions_T.const_data_ptr<int64_t>();
  for (int64_t s = 0; s < layout.batch(); ++s) {
    const int64_t taken = layout.is_packed() ? layout.lengths[static_cast<size_t>(s)] : layout.padded_length;
    const uint32_t place =
        source.places.empty() ? 0 : checked_place(source.places[static_cast<size_t>(s % rows_a_side)]);
    rows->ordinals.insert(rows->ordinals.end(), static_cast<size_t>(taken), place);
    rows->sides.insert(rows->sides.end(), static_cast<size_t>(taken), static_cast<uint8_t>(s / rows_a_side));
    for (int64_t i = 0; i < taken; ++i) rows->positions.push_back(static_cast<uint32_t>(*positions++));
  }
  return std::make_shared<const DropoutRows>(DropoutRows{.seed = source.seed, .rows = std::move(rows)});
}

std::shared_ptr<const DropoutRows> dropout_at(const DropoutRows& all, const at::Tensor& rows_M) {
  APUS_CHECK(rows_M.is_cpu() && rows_M.dim() == 1 && rows_M.scalar_type() == at::kLong && all.rows,
             ShapeError, "dropout: the rows must be int64 [M] on the CPU, they are ", rows_M.scalar_type(),
             " ", rows_M.sizes(), " on ", rows_M.device().str());
  const at::Tensor dense_M = rows_M.contiguous();
  const std::span<const int64_t> places(dense_M.const_data_ptr<int64_t>(),
                                        static_cast<size_t>(dense_M.numel()));
  auto rows = std::make_shared<ops::SampleRows>();
  rows->epoch = all.rows->epoch;
  for (const int64_t place : places) {
    const auto row = static_cast<size_t>(place);
    APUS_CHECK(place >= 0 && row < all.rows->ordinals.size(), ShapeError, "dropout: row ", place, " of ",
               all.rows->ordinals.size(), " does not exist");
    rows->ordinals.push_back(all.rows->ordinals[row]);
    rows->sides.push_back(all.rows->sides[row]);
    rows->positions.push_back(all.rows->positions[row]);
  }
  return std::make_shared<const DropoutRows>(DropoutRows{.seed = all.seed, .rows = std::move(rows)});
}

}  // namespace apus::nn
