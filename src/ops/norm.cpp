#include "apus/ops/norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/alias.h>

#include "apus/base/error.h"
#include "ops/kernel_rows.h"
#include "ops/norm_cuda.h"
#include "ops/twins.h"

namespace apus::ops {
namespace {

void check(const at::Tensor& x_TD, const at::Tensor& weight_D) {
  APUS_CHECK(x_TD.dim() >= 1 && weight_D.dim() == 1 && weight_D.size(0) == x_TD.size(-1), ShapeError,
             "rms_norm: the weight must be [D] with D the last dim of x; x is ", x_TD.sizes(), ", weight is ",
             weight_D.sizes());
  APUS_CHECK(x_TD.scalar_type() == weight_D.scalar_type(), ShapeError, "rms_norm: x is ", x_TD.scalar_type(),
             " but the weight is ", weight_D.scalar_type(), "; both must have one dtype");
}

/// Whether the kernels take rows of this width.
bool takes_norm(const at::Tensor& x_TD) {
  return takes_rows(x_TD) && x_TD.size(1) <= cuda::kMaxNormVectors * elements_a_vector(x_TD);
}

}  // namespace

at::Tensor twin::rms_norm(const at::Tensor& x_TD, const at::Tensor& weight_D, double eps) {
  // x gets one gradient, the sum over its two uses here, in fp32 too: so the norm's backward gives the same
  // bits whether x is the tape's own tensor or a leaf of a recompute.
  const at::Tensor x32_TD = x_TD.scalar_type() == at::kFloat ? at::alias(x_TD) : x_TD.to(at::kFloat);
  const at::Tensor scale_T1 = x32_TD.square().mean(-1, /*keepdim=*/true).add(eps).rsqrt();
  return (x32_TD * scale_T1).to(x_TD.scalar_type()) * weight_D;
}

at::Tensor rms_norm(const at::Tensor& x_TD, const at::Tensor& weight_D, double eps) {
  check(x_TD, weight_D);
  if (is_kernel_tensor(x_TD) && x_TD.dim() > 2) {
    const at::Tensor rows_TD = x_TD.flatten(0, -2);
    if (takes_norm(rows_TD))
      return cuda::rms_norm_residual(rows_TD, weight_D, eps, {}).normed.view(x_TD.sizes());
  }
  if (takes_norm(x_TD)) return cuda::rms_norm_residual(x_TD, weight_D, eps, {}).normed;
  return twin::rms_norm(x_TD, weight_D, eps);
}

AddRmsNorm add_rms_norm(const at::Tensor& x_TD, const at::Tensor& residual_TD, const at::Tensor& weight_D,
                        double eps) {
  APUS_CHECK(x_TD.sizes() == residual_TD.sizes(), ShapeError, "add_rms_norm: x is ", x_TD.sizes(),
             " but the residual is ", residual_TD.sizes());
  check(x_TD, weight_D);
  if (takes_norm(x_TD) && residual_TD.scalar_type() == x_TD.scalar_type())
    return cuda::add_rms_norm(x_TD, residual_TD, weight_D, eps);
  at::Tensor sum_TD = x_TD + residual_TD;
  at::Tensor normed_TD = rms_norm(sum_TD, weight_D, eps);
  return {std::move(normed_TD), std::move(sum_TD)};
}

ResidualRmsNorm rms_norm_residual(const at::Tensor& x_TD, const at::Tensor& weight_D, double eps,
                                  const RmsNormRooms& rooms) {
  APUS_CHECK(x_TD.dim() == 2, ShapeError, "rms_norm_residual: x must be [T, D], it is ", x_TD.sizes());
  APUS_CHECK(
      rooms.normed.before >= 0 && rooms.normed.after >= 0 && rooms.grad.before >= 0 && rooms.grad.after >= 0,
      ShapeError, "rms_norm_residual: rooms must not be negative");
  check(x_TD, weight_D);
  if (takes_norm(x_TD)) return cuda::rms_norm_residual(x_TD, weight_D, eps, rooms);
  return {twin::rms_norm(x_TD, weight_D, eps), x_TD};
}

}  // namespace apus::ops
