#include "apus/nn/pass_context.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "apus/base/error.h"
#include "apus/ops/attention.h"

namespace apus::nn {
namespace {

// Kernels index rows with 32 bits.
constexpr int64_t kMaxRows = std::numeric_limits<int32_t>::max();

int64_t largest(const std::vector<int64_t>& lengths) {
  for (size_t i = 0; i < lengths.size(); ++i)
    APUS_CHECK(lengths[i] >= 0, ShapeError, "sequence ", i, " has the negative length ", lengths[i]);
  return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

void check_row_count(int64_t rows) {
  APUS_CHECK(
      rows <= kMaxRows, ShapeError, "a micro-batch of ", rows, " token rows is beyond ", kMaxRows,
      "; take fewer rows, or shorter ones (--per_device_train_batch_size, --max_length, --packing_length)");
}

// The sum of lengths; refuses one that is too large before anything of that size is made.
int64_t packed_rows(const std::vector<int64_t>& lengths) {
  int64_t rows = 0;
  for (const int64_t length : lengths) {
    check_row_count(length);
    check_row_count(rows += length);
  }
  return rows;
}

void check_prefixes(const std::vector<int64_t>& prefixes, size_t sequences) {
  APUS_CHECK(prefixes.size() == sequences, ShapeError, sequences, " sequences have ", prefixes.size(),
             " prefixes");
  for (size_t i = 0; i < prefixes.size(); ++i) {
    const int64_t prefix = prefixes[i];
    APUS_CHECK(prefix >= -1 && prefix < static_cast<int64_t>(i), ShapeError, "sequence ", i,
               " has the prefix ", prefix, ", expected -1 or an earlier sequence");
    APUS_CHECK(prefix < 0 || prefixes[static_cast<size_t>(prefix)] < 0, ShapeError, "sequence ", i,
               " has the prefix ", prefix, ", which has a prefix itself");
  }
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

at::Tensor RowLayout::cu_seqlens() const {
  const at::Tensor borders = at::empty({batch() + 1}, at::kInt);
  int32_t* next = borders.mutable_data_ptr<int32_t>();
  int64_t row = 0;
  *next++ = 0;
  for (const int64_t length : lengths) {
    const int64_t taken = is_packed() ? length : padded_length;
    check_row_count(taken);
    check_row_count(row += taken);
    *next++ = static_cast<int32_t>(row);
  }
  return borders;
}

std::shared_ptr<const RowLayout> RowLayout::packed(std::vector<int64_t> lengths) {
  return prefixed(std::move(lengths), {});
}

std::shared_ptr<const RowLayout> RowLayout::prefixed(std::vector<int64_t> lengths,
                                                     std::vector<int64_t> prefixes) {
  auto layout = std::make_shared<RowLayout>();
  layout->max_length = largest(lengths);
  const int64_t rows = packed_rows(lengths);
  if (!prefixes.empty()) check_prefixes(prefixes, lengths.size());
  layout->lengths = std::move(lengths);
  layout->prefixes = std::move(prefixes);
  if (std::all_of(layout->prefixes.begin(), layout->prefixes.end(),
                  [](int64_t prefix) { return prefix < 0; }))
    layout->prefixes.clear();
  layout->positions_T = at::empty({rows}, at::kLong);
  int64_t* next = layout->positions_T.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < layout->lengths.size(); ++i) {
    const int64_t prefix = layout->prefixes.empty() ? -1 : layout->prefixes[i];
    const int64_t first = prefix < 0 ? 0 : layout->lengths[static_cast<size_t>(prefix)];
    std::iota(next, next + layout->lengths[i], first);
    next += layout->lengths[i];
  }
  return layout;
}

std::shared_ptr<const RowLayout> RowLayout::padded(std::vector<int64_t> lengths, int64_t padded_length) {
  auto layout = std::make_shared<RowLayout>();
  layout->max_length = largest(lengths);
  APUS_CHECK(padded_length > 0 && layout->max_length <= padded_length, ShapeError,
             "the longest sequence has ", layout->max_length,
             " tokens but each takes padded_length = ", padded_length, " rows");
  check_row_count(padded_length);
  check_row_count(padded_length * static_cast<int64_t>(lengths.size()));
  layout->lengths = std::move(lengths);
  layout->padded_length = padded_length;
  layout->positions_T = at::arange(padded_length, at::kLong).repeat({layout->batch()});
  return layout;
}

ops::AttentionRows attention_rows(const RowLayout& layout) {
  APUS_CHECK(
      layout.prefixes.empty(), NotSupported,
      "this model's attention does not read prompts that several answers share; lay the answers out whole "
      "(BatchLayout::kPadded or kPacked)");
  return {.lengths = layout.lengths, .padded_length = layout.padded_length};
}

ops::AttentionRows attention_rows(const PassContext& context) {
  APUS_CHECK(context.rows, ShapeError, "the pass has no row layout: set PassContext::rows");
  ops::AttentionRows rows = attention_rows(*context.rows);
  rows.device = context.device_rows;
  return rows;
}

}  // namespace apus::nn
