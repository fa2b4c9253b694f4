#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "apus/base/api.h"
#include "apus/nn/module.h"
#include "apus/ops/norm.h"

namespace apus::nn {

/// Size, epsilon and dtype of an RmsNorm.
struct APUS_API RmsNormOptions {
  int64_t size = 0;
  double eps = 1e-6;
  at::ScalarType dtype = at::kFloat;
};

/// Root-mean-square norm with a weight, see ops::rms_norm.
/// Parameter names: "weight".
class APUS_API RmsNorm final : public Module {
 public:
  /// Leaves the weight's values unset and frozen; a loader fills it.
  explicit RmsNorm(const RmsNormOptions& options);

  /// Shapes:  [T, D] -> [T, D].
  at::Tensor forward(const at::Tensor& x_TD) const;

  /// The norm of x + residual, together with that sum.
  ops::AddRmsNorm forward_add(const at::Tensor& x_TD, const at::Tensor& residual_TD) const;

  const at::Tensor& weight() const { return weight_D_; }

 private:
  double eps_;
  at::Tensor weight_D_;
};

}  // namespace apus::nn
