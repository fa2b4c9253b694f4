#include "apus/ops/select_rows.h"

#include <ATen/ops/index_select.h>

#include "apus/base/error.h"
#include "ops/select_rows_cuda.h"

namespace apus::ops {

at::Tensor select_rows(const at::Tensor& x_TD, const at::Tensor& rows_M, RowRoom room) {
  APUS_CHECK(x_TD.dim() == 2 && rows_M.dim() == 1 && rows_M.scalar_type() == at::kLong, ShapeError,
             "select_rows: x must be [T, D] and the rows int64 [M]; they are ", x_TD.sizes(), " and ",
             rows_M.scalar_type(), " ", rows_M.sizes());
  APUS_CHECK(x_TD.device() == rows_M.device(), ShapeError, "select_rows: x is on ", x_TD.device().str(),
             " but the rows are on ", rows_M.device().str());
  if (x_TD.is_cuda()) return cuda::select_rows(x_TD, rows_M, room);
  if (rows_M.numel() > 0) {
    const int64_t* const rows = rows_M.const_data_ptr<int64_t>();
    for (int64_t m = 0; m < rows_M.numel(); ++m)
      APUS_CHECK(rows[m] >= 0 && rows[m] < x_TD.size(0), ShapeError, "select_rows: row ", rows[m], " of ",
                 x_TD.size(0), " does not exist");
  }
  return at::index_select(x_TD, 0, rows_M);
}

}  // namespace apus::ops
