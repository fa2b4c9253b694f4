#pragma once

#include <ATen/core/Tensor.h>

#include "apus/base/api.h"

namespace apus::nn {

/// Where activations cross from replicated to split work and back: the seam through which parallelism enters
/// a module without the module naming a communicator.
///
/// A module calls enter() on its input and leave() on its output (before a bias that must count once). Both
/// are differentiable by the tape. This base is the identity, which is what a model on one device has; tensor
/// and sequence parallelism derive from it, e.g. a row split sums over its ranks in leave().
class APUS_API Boundary {
 public:
  Boundary() = default;
  Boundary(const Boundary&) = delete;
  Boundary& operator=(const Boundary&) = delete;
  virtual ~Boundary();

  /// Shapes:  [T, in] as the module's user passes it -> what this rank's part of the weight takes.
  virtual at::Tensor enter(const at::Tensor& input) const;

  /// Shapes:  what this rank's part of the weight gives -> what the module's user receives.
  virtual at::Tensor leave(const at::Tensor& output) const;
};

}  // namespace apus::nn
