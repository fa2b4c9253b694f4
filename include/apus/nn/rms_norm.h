#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "apus/base/api.h"
#include "apus/nn/adaptable_module.h"
#include "apus/nn/pass_context.h"
#include "apus/ops/norm.h"
#include "apus/ops/recomputed.h"

namespace apus::nn {

/// Size, epsilon and dtype of an RmsNorm.
/// eps stands inside the root, beside the mean square, as in Hugging Face's rms_norm_eps.
struct APUS_API RmsNormOptions {
  int64_t size = 0;
  double eps = 1e-6;
  at::ScalarType dtype = at::kFloat;
};

/// Root-mean-square norm with a weight, see ops::rms_norm.
/// Maths:   y = x * rsqrt(mean(x^2) + eps) * weight, row by row.
/// Dtypes:  x has the weight's dtype; computed in fp32.
/// An active adapter's copy of the weight replaces it.
/// Parameter names: "weight", "modules_to_save.<name>.weight".
class APUS_API RmsNorm final : public AdaptableModule {
 public:
  /// Leaves the weight's values unset and frozen; a loader fills it.
  /// Throws:  ConfigError if the size is not positive or eps is negative.
  explicit RmsNorm(const RmsNormOptions& options);

  /// Shapes:  [T, D] -> [T, D].
  at::Tensor forward(const at::Tensor& x_TD, const PassContext& context) const;

  /// The same, as the pass's tape keeps it: whole, or with context.light_tape to be dropped once it has been
  /// used.
  ops::Recomputed forward_light(const at::Tensor& x_TD, const PassContext& context) const;

  /// The norm of x + residual, together with that sum: one operation, so that it can be one kernel.
  /// Shapes:  both [T, D] -> both [T, D].
  ops::AddRmsNorm forward_add(const at::Tensor& x_TD, const at::Tensor& residual_TD,
                              const PassContext& context) const;

  /// The norm of x, and x for the residual path around what the norm feeds: see ops::rms_norm_residual.
  /// Shapes:  [T, D] -> both [T, D].
  ops::ResidualRmsNorm forward_residual(const at::Tensor& x_TD, const PassContext& context,
                                        const ops::RmsNormRooms& rooms = {}) const;

  /// What makes forward_residual's norm again, without tape: it keeps x and the weight by reference.
  std::function<at::Tensor()> remake(const at::Tensor& x_TD, const PassContext& context,
                                     ops::RowRoom room = {}) const;

  const at::Tensor& weight() const { return weight_D_; }
  /// The weight that a pass reads: an active adapter's copy, or the base's.
  at::Tensor weight(const PassContext& context) const { return active("weight", weight_D_, context); }
  double eps() const { return eps_; }

 private:
  double eps_;
  at::Tensor weight_D_;
};

}  // namespace apus::nn
