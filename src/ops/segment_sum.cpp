#include "apus/ops/segment_sum.h"

#include <ATen/ops/index_add.h>
#include <ATen/ops/zeros.h>

#include "apus/base/error.h"
#include "ops/segment_sum_cuda.h"

namespace apus::ops {

at::Tensor segment_sum(const at::Tensor& x_M, const at::Tensor& segments_M, int64_t count) {
  APUS_CHECK(x_M.dim() == 1 && x_M.sizes() == segments_M.sizes() && segments_M.scalar_type() == at::kLong &&
                 count >= 0,
             ShapeError, "segment_sum: values must be [M] and segments int64 [M]; they are ", x_M.sizes(),
             " and ", segments_M.scalar_type(), " ", segments_M.sizes(), ", of ", count, " segments");
  APUS_CHECK(x_M.device() == segments_M.device(), ShapeError, "segment_sum: values are on ",
             x_M.device().str(), " but segments are on ", segments_M.device().str());
  if (x_M.is_cuda()) return cuda::segment_sum(x_M, segments_M, count);
  const at::Tensor zeros = at::zeros({count}, x_M.options().requires_grad(false));
  return at::index_add(zeros, 0, segments_M, x_M);
}

}  // namespace apus::ops
