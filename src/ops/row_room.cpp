#include "apus/ops/row_room.h"

#include <ATen/ops/empty.h>

#include "apus/base/error.h"

namespace apus::ops {

at::Tensor empty_with_room(int64_t rows, int64_t columns, RowRoom room, const at::TensorOptions& options) {
  APUS_CHECK(rows >= 0 && columns >= 0 && room.before >= 0 && room.after >= 0, ShapeError,
             "empty_with_room: [", rows, ", ", columns, "] with room ", room.before, " and ", room.after,
             "; sizes must not be negative");
  return at::empty({rows, room.width(columns)}, options).narrow(1, room.before, columns);
}

bool has_room(const at::Tensor& x_TD, RowRoom room) {
  if (!x_TD.defined() || x_TD.dim() != 2 || x_TD.stride(1) != 1) return false;
  const int64_t width = room.width(x_TD.size(1)), offset = x_TD.storage_offset();
  if (x_TD.stride(0) != width || offset < room.before) return false;
  const int64_t end = offset - room.before + x_TD.size(0) * width;
  return end * static_cast<int64_t>(x_TD.element_size()) <= static_cast<int64_t>(x_TD.storage().nbytes());
}

at::Tensor with_room(const at::Tensor& x_TD, RowRoom room) {
  APUS_CHECK(has_room(x_TD, room), ShapeError, "with_room: rows of ", x_TD.sizes(), ", strides ",
             x_TD.strides(), ", have no room of ", room.before, " and ", room.after, " columns");
  const int64_t width = room.width(x_TD.size(1));
  return x_TD.detach().as_strided({x_TD.size(0), width}, {width, 1}, x_TD.storage_offset() - room.before);
}

}  // namespace apus::ops
