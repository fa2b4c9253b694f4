#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "apus/base/api.h"
#include "apus/ops/joint_home.h"

namespace apus::memory {
class GradSink;
}

namespace apus::ops {

/// What a joint product may use.
struct APUS_API JointLinearOptions {
  /// Holds the parts' weights, all frozen; null: they lie anywhere.
  std::shared_ptr<JointHome> home = {};
  /// [T, O], added to the output of a single part; undefined: none.
  at::Tensor residual_TO = {};
  /// Where weight gradients are added instead of going to the tape; null: to the tape.
  memory::GradSink* gradients = nullptr;
  /// Makes x again in backward, with the same room, instead of keeping it. It must hold no tape.
  std::function<at::Tensor()> remake_x = {};
  /// The result's values are not read, only its gradients are wanted (a recompute): they may be anything.
  bool output_is_unread = false;
};

/// Several projections of one input, their adapters included, as one differentiable operation.
/// Maths:       y[:, part] = x W^T + b + s (x A^T) B^T, plus the residual.
/// Shapes:      x [T, D]; per part W [O, D], b [O], A [r, D], B [O, r] -> [T, sum O], parts side by side.
/// Dtypes:      all equal, bf16 or fp32, accumulated in fp32. On a GPU the output is rounded once, and t and
///              u = dy s B once; weight gradients are summed in fp32 and written in the target's dtype.
/// With a home whose adapters fit, x in rows with home->input_room() and dy in rows with home->grad_room(),
/// nothing is copied and base and adapter are one product (see JointHome). Without, each part has products
/// of its own, adapters added in place. On the CPU, and for other dtypes, the composition of ops::linear.
/// Memory:      keeps x (unless remake_x) and, without a home, t [T, sum r]; with one t lies beside x.
/// Determinism: bitwise.
/// Throws:      ShapeError if operands do not fit, or there is a residual and more than one part.
APUS_API at::Tensor joint_linear(const at::Tensor& x_TD, const std::vector<JointPart>& parts,
                                 const JointLinearOptions& options = {});

}  // namespace apus::ops
