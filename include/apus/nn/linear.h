#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "apus/base/api.h"
#include "apus/nn/adaptable_module.h"
#include "apus/nn/boundary.h"
#include "apus/nn/pass_context.h"
#include "apus/ops/joint_home.h"

namespace apus::nn {

/// Shape and dtype of a Linear: weight [out_features, in_features], bias [out_features] if there is one.
struct APUS_API LinearOptions {
  int64_t in_features = 0;
  int64_t out_features = 0;
  bool bias = false;
  at::ScalarType dtype = at::kFloat;
};

/// Size and strength of one LoRA adapter.
struct APUS_API LoraOptions {
  int64_t rank = 8;
  double alpha = 32;
  /// Scaling alpha / sqrt(rank) instead of alpha / rank.
  bool use_rslora = false;
  /// Share of x's features that is dropped on the way into A, in passes that have PassContext::dropout.
  double dropout = 0.0;
  /// The layer's full path, which with the adapter's name keys the mask; needed if dropout > 0.
  std::string path = "";

  /// The factor in front of B A.
  double scaling() const;
};

/// One named adapter: A [r, in] and B [out, r], handles of registered parameters (an optimizer may install
/// other storage into them at any time between passes).
/// Source:  Hu et al., "LoRA: low-rank adaptation of large language models", 2021.
struct APUS_API LoraAdapter {
  at::Tensor a_RI;
  at::Tensor b_OR;
  double scaling = 1.0;
  /// LoraOptions::dropout.
  double dropout = 0.0;
  /// "<path>.lora_dropout.<name>": with the run's seed it keys the mask. Empty without dropout.
  std::string dropout_path = "";
};

/// The single projection class of the library: y = x W^T + b, plus the active adapters in place.
///
/// Maths:   y = x W^T + bias + sum over active adapters of scaling * (drop(x) A^T) B^T, where drop is the
///          identity unless the pass has dropout; each target has a mask of its own. An active adapter's copy
///          of the weight or the bias replaces it.
/// Shapes:  x [T, in] -> y [T, out]; W [out, in]; A [r, in]; B [out, r].
/// Dtypes:  all operands share the base's compute dtype; accumulation as at::linear. An adapter of another
///          dtype computes in its own, and its output is rounded to x's.
/// Without an active adapter this is exactly at::linear.
/// Adapters are named and chosen by the pass (context.adapters); one that this layer lacks is skipped.
/// Parameter names: "weight", "bias", "lora_A.<name>.weight", "lora_B.<name>.weight", copies as CopyKind
/// says.
class APUS_API Linear final : public AdaptableModule {
 public:
  /// Leaves the weight undefined-valued (at::empty) and frozen; a loader fills it.
  explicit Linear(const LinearOptions& options);

  /// Shapes:  x [T, in] -> [T, out]; differentiable by the tape in x and in every parameter.
  at::Tensor forward(const at::Tensor& x_TI, const PassContext& context) const;

  /// Adds zero-filled trainable adapter tensors in `dtype`; the caller initialises them.
  /// Throws ConfigError if the name exists, is empty or has a dot, rank < 1, dropout is not in [0, 1), or
  /// there is dropout and no path.
  LoraAdapter& add_adapter(const std::string& name, const LoraOptions& options, at::ScalarType dtype);

  /// Takes A and B off; copies stay (remove_copies). Throws ConfigError if there is none of that name.
  void remove_adapter(const std::string& name);

  /// Null if there is no adapter of that name. The pointer lives until the adapter is removed.
  LoraAdapter* find_adapter(const std::string& name);
  /// The same for reading.
  const LoraAdapter* find_adapter(const std::string& name) const;
  /// Of its adapters; 0 without any.
  int64_t largest_rank() const;

  /// What a pass computes here, as an operand of a joint product; absent where that takes more than weight,
  /// bias and one adapter of the weight's dtype: a boundary, an active copy, several active adapters,
  /// dropout.
  std::optional<ops::JointPart> plain_part(const PassContext& context) const;

  /// Puts a seam around the product; null = identity. The bias is added behind leave().
  void set_boundary(std::shared_ptr<const Boundary> boundary) { boundary_ = std::move(boundary); }

  const LinearOptions& options() const { return options_; }
  const at::Tensor& weight() const { return weight_OI_; }
  /// Undefined if there is none.
  const at::Tensor& bias() const { return bias_O_; }

 private:
  at::Tensor forward_across(const Boundary& boundary, const at::Tensor& x_TI,
                            const PassContext& context) const;
  at::Tensor active_weight(const PassContext& context) const;
  at::Tensor active_bias(const PassContext& context) const;
  at::Tensor add_adapters(at::Tensor y_TO, const at::Tensor& x_TI, const PassContext& context) const;

  LinearOptions options_;
  at::Tensor weight_OI_;
  at::Tensor bias_O_;
  std::map<std::string, LoraAdapter> adapters_;
  std::shared_ptr<const Boundary> boundary_;
};

}  // namespace apus::nn
