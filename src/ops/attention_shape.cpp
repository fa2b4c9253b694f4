#include "ops/attention_shape.h"

#include <algorithm>
#include <bit>

namespace apus::ops::cuda {
namespace {

int64_t round_up(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

/// The largest power of two below value, at least 1.
int64_t power_below(int64_t value) {
  return value <= 1 ? 1 : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(value - 1)));
}

int64_t row_class(int64_t rows) {
  return round_up(std::max<int64_t>(rows, 1), std::max<int64_t>(1024, power_below(rows) / 8));
}

int64_t length_class(int64_t max_length, int64_t rows) {
  const auto power =
      static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(max_length, 1))));
  // No plan needs a length beyond its rows.
  return std::min(row_class(rows), std::max<int64_t>(4096, power));
}

}  // namespace

bool plans_take(const AttentionSizes& sizes) {
  const int64_t widest = std::max(sizes.out_stride, sizes.heads * sizes.head_dim);
  return row_class(sizes.rows) <= kMostElements / widest;
}

PlanShape forward_plan(const AttentionSizes& sizes) {
  return {.heads = sizes.heads,
          .kv_heads = sizes.kv_heads,
          .head_dim = sizes.head_dim,
          .sequences = sizes.slots,
          .max_length = length_class(sizes.max_length, sizes.rows),
          .out_stride = sizes.out_stride};
}

PlanShape backward_plan(const AttentionSizes& sizes) {
  PlanShape shape = forward_plan(sizes);
  shape.max_rows = row_class(sizes.rows);
  return shape;
}

bool is_even(const AttentionSizes& sizes) {
  constexpr int64_t kLeast = 1024, kStep = 512;
  return sizes.max_length >= kLeast && sizes.max_length % kStep == 0 &&
         sizes.rows == sizes.sequences * sizes.max_length;
}

PlanShape even_plan(const PlanShape& shape, const AttentionSizes& sizes) {
  PlanShape even = shape;
  even.sequences = sizes.sequences;
  even.max_length = sizes.max_length;
  if (shape.is_backward()) even.max_rows = sizes.rows;
  even.even = true;
  return even;
}

PlanShape deterministic_backward_plan(const AttentionSizes& sizes) {
  PlanShape shape = backward_plan(sizes);
  shape.deterministic = true;
  shape.sequences = std::min(sizes.slots, sizes.sequences <= 4 ? std::max<int64_t>(sizes.sequences, 1)
                                                               : round_up(sizes.sequences, 4));
  shape.max_length = std::min(shape.max_length, round_up(std::max<int64_t>(sizes.max_length, 1), 512));
  return shape;
}

int64_t score_bytes(const PlanShape& shape) {
  return 2 * shape.sequences * shape.heads * shape.max_length * shape.max_length;
}

}  // namespace apus::ops::cuda
