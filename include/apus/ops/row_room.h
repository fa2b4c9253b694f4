#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "apus/base/api.h"

namespace apus::ops {

/// Spare columns on both sides of a matrix's rows, in elements.
///
/// A LoRA product reads [x, t] as one matrix, where t = x A^T is narrow: if x's maker leaves room beside its
/// rows, t is written there and nothing is copied. The room belongs to the operation that reads x next; its
/// contents are unspecified until that operation writes them.
struct APUS_API RowRoom {
  int64_t before = 0;
  int64_t after = 0;

  bool is_empty() const { return before == 0 && after == 0; }
  int64_t width(int64_t columns) const { return before + columns + after; }
  bool operator==(const RowRoom&) const = default;
};

/// An uninitialised [rows, columns] view of a [rows, before + columns + after] storage; dense without room.
/// Throws:      ShapeError for a negative size.
APUS_API at::Tensor empty_with_room(int64_t rows, int64_t columns, RowRoom room,
                                    const at::TensorOptions& options);

/// Whether x [T, D] has exactly this room beside its rows: unit inner stride, row stride width(D), and
/// storage there.
APUS_API bool has_room(const at::Tensor& x_TD, RowRoom room);

/// The rows together with their room, [T, before + D + after]: an alias without tape.
/// Throws:      ShapeError unless has_room(x, room).
APUS_API at::Tensor with_room(const at::Tensor& x_TD, RowRoom room);

}  // namespace apus::ops
