#include "apus/ops/joint_linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "apus/base/error.h"
#include "apus/ops/projection.h"
#include "ops/joint_linear_cuda.h"

namespace apus::ops {
namespace {

void check_part(const at::Tensor& x_TD, const JointPart& part) {
  const int64_t d = x_TD.size(1);
  APUS_CHECK(part.weight_OD.defined() && part.weight_OD.dim() == 2 && part.weight_OD.size(1) == d, ShapeError,
             "joint_linear: x is ", x_TD.sizes(), " but a weight is ",
             part.weight_OD.defined() ? part.weight_OD.sizes() : at::IntArrayRef(), " [out, in]");
  const int64_t out = part.weight_OD.size(0);
  APUS_CHECK(!part.bias_O.defined() || (part.bias_O.dim() == 1 && part.bias_O.size(0) == out), ShapeError,
             "joint_linear: a bias is ", part.bias_O.sizes(), " but its weight is ", part.weight_OD.sizes());
  if (!part.has_adapter()) return;
  APUS_CHECK(part.a_RD.dim() == 2 && part.b_OR.defined() && part.b_OR.dim() == 2 && part.a_RD.size(1) == d &&
                 part.b_OR.size(0) == out && part.a_RD.size(0) == part.b_OR.size(1),
             ShapeError, "joint_linear: A must be [r, ", d, "] and B [", out, ", r]; they are ",
             part.a_RD.sizes(), " and ", part.b_OR.defined() ? part.b_OR.sizes() : at::IntArrayRef());
}

void check(const at::Tensor& x_TD, const std::vector<JointPart>& parts, const JointLinearOptions& options) {
  APUS_CHECK(x_TD.dim() == 2, ShapeError, "joint_linear: x must be [T, D], it is ", x_TD.sizes());
  APUS_CHECK(!parts.empty(), ShapeError, "joint_linear needs a projection");
  for (const JointPart& part : parts) check_part(x_TD, part);
  const at::Tensor& residual_TO = options.residual_TO;
  if (!residual_TO.defined()) return;
  APUS_CHECK(parts.size() == 1, ShapeError, "joint_linear: a residual is for one projection, there are ",
             parts.size());
  APUS_CHECK(residual_TO.dim() == 2 && residual_TO.size(0) == x_TD.size(0) &&
                 residual_TO.size(1) == parts[0].weight_OD.size(0),
             ShapeError, "joint_linear: the residual is ", residual_TO.sizes(), ", expected [", x_TD.size(0),
             ", ", parts[0].weight_OD.size(0), "]");
}

/// Whether the fused form takes the operands: one GPU, one dtype of two.
bool is_fusable(const at::Tensor& x_TD, const std::vector<JointPart>& parts,
                const JointLinearOptions& options) {
  if (!x_TD.is_cuda() || (x_TD.stride(1) != 1 && x_TD.size(1) > 1)) return false;
  if (x_TD.scalar_type() != at::kBFloat16 && x_TD.scalar_type() != at::kFloat) return false;
  const auto is_like_x = [&](const at::Tensor& tensor) {
    return !tensor.defined() ||
           (tensor.device() == x_TD.device() && tensor.scalar_type() == x_TD.scalar_type());
  };
  for (const JointPart& part : parts) {
    for (const at::Tensor& tensor : {part.weight_OD, part.bias_O, part.a_RD, part.b_OR})
      if (!is_like_x(tensor)) return false;
  }
  return is_like_x(options.residual_TO);
}

}  // namespace

at::Tensor joint_linear_twin(const at::Tensor& x_TD, const std::vector<JointPart>& parts,
                             const JointLinearOptions& options) {
  std::vector<at::Tensor> outputs;
  for (const JointPart& part : parts) {
    at::Tensor y_TO = linear(x_TD, part.weight_OD, part.bias_O);
    if (part.has_adapter()) y_TO = y_TO + linear(linear(x_TD, part.a_RD) * part.scaling, part.b_OR);
    outputs.push_back(std::move(y_TO));
  }
  at::Tensor joined = outputs.size() == 1 ? outputs[0] : at::cat(outputs, 1);
  return options.residual_TO.defined() ? joined + options.residual_TO : joined;
}

at::Tensor joint_linear(const at::Tensor& x_TD, const std::vector<JointPart>& parts,
                        const JointLinearOptions& options) {
  check(x_TD, parts, options);
  if (is_fusable(x_TD, parts, options)) return cuda::joint_linear(x_TD, parts, options);
  return joint_linear_twin(x_TD, parts, options);
}

}  // namespace apus::ops
