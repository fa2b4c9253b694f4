#include "apus/nn/pass_context.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

#include "apus/base/error.h"

namespace apus::nn {
namespace {

int64_t largest(const std::vector<int64_t>& lengths) {
  for (size_t i = 0; i < lengths.size(); ++i)
    APUS_CHECK(lengths[i] >= 0, ShapeError, "sequence ", i, " has the negative length ", lengths[i]);
  return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

}  // namespace

int64_t RowLayout::rows() const {
  return is_packed() ? std::accumulate(lengths.begin(), lengths.end(), int64_t{0}) : batch() * padded_length;
}

int64_t RowLayout::first_row(int64_t index) const {
  APUS_CHECK(index >= 0 && index < batch(), ShapeError, "sequence ", index, " of ", batch());
  return is_packed() ? std::accumulate(lengths.begin(), lengths.begin() + index, int64_t{0})
                     : index * padded_length;
}

std::shared_ptr<const RowLayout> RowLayout::packed(std::vector<int64_t> lengths) {
  auto layout = std::make_shared<RowLayout>();
  layout->max_length = largest(lengths);
  layout->lengths = std::move(lengths);
  layout->positions_T = at::empty({layout->rows()}, at::kLong);
  int64_t* next = layout->positions_T.mutable_data_ptr<int64_t>();
  for (const int64_t length : layout->lengths) {
    std::iota(next, next + length, int64_t{0});
    next += length;
  }
  return layout;
}

std::shared_ptr<const RowLayout> RowLayout::padded(std::vector<int64_t> lengths, int64_t padded_length) {
  auto layout = std::make_shared<RowLayout>();
  layout->max_length = largest(lengths);
  APUS_CHECK(padded_length > 0 && layout->max_length <= padded_length, ShapeError,
             "the longest sequence has ", layout->max_length,
             " tokens but each takes padded_length = ", padded_length, " rows");
  layout->lengths = std::move(lengths);
  layout->padded_length = padded_length;
  layout->positions_T = at::arange(padded_length, at::kLong).repeat({layout->batch()});
  return layout;
}

}  // namespace apus::nn
