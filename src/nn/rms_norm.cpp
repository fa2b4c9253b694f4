#include "apus/nn/rms_norm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "apus/base/error.h"

namespace apus::nn {

RmsNorm::RmsNorm(const RmsNormOptions& options) : eps_(options.eps) {
  APUS_CHECK(options.size > 0 && options.eps >= 0, ConfigError,
             "RmsNorm needs a positive size and eps >= 0, got ", options.size, " and ", options.eps);
  weight_D_ = register_parameter("weight", at::empty({options.size}, options.dtype));
  allow_copies("weight", weight_D_);
}

at::Tensor RmsNorm::forward(const at::Tensor& x_TD, const PassContext& context) const {
  return ops::rms_norm(x_TD, active("weight", weight_D_, context), eps_);
}

ops::Recomputed RmsNorm::forward_light(const at::Tensor& x_TD, const PassContext& context) const {
  if (!context.light_tape) return ops::Recomputed(forward(x_TD, context));
  return ops::Recomputed({x_TD, active("weight", weight_D_, context)},
                         [eps = eps_](const std::vector<at::Tensor>& inputs) {
                           return ops::rms_norm(inputs[0], inputs[1], eps);
                         });
}

ops::AddRmsNorm RmsNorm::forward_add(const at::Tensor& x_TD, const at::Tensor& residual_TD,
                                     const PassContext& context) const {
  return ops::add_rms_norm(x_TD, residual_TD, active("weight", weight_D_, context), eps_);
}

ops::ResidualRmsNorm RmsNorm::forward_residual(const at::Tensor& x_TD, const PassContext& context,
                                               const ops::RmsNormRooms& rooms) const {
  return ops::rms_norm_residual(x_TD, weight(context), eps_, rooms);
}

std::function<at::Tensor()> RmsNorm::remake(const at::Tensor& x_TD, const PassContext& context,
                                            ops::RowRoom room) const {
  return [x = x_TD.detach(), weight_D = weight(context), eps = eps_, room] {
    const at::NoGradGuard no_grad;
    return ops::rms_norm_residual(x, weight_D, eps, {.normed = room}).normed;
  };
}

}  // namespace apus::nn
