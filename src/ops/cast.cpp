#include "apus/ops/cast.h"

#include "ops/cast_cuda.h"
#include "ops/kernel_rows.h"

namespace apus::ops {

at::Tensor cast(const at::Tensor& x, at::ScalarType dtype) {
  if (x.scalar_type() == dtype) return x;
  const bool has_kernel = is_kernel_tensor(x) && (dtype == at::kFloat || dtype == at::kBFloat16);
  return has_kernel ? cuda::cast(x, dtype) : x.to(dtype);
}

}  // namespace apus::ops
