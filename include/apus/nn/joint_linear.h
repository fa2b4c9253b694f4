#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "apus/base/api.h"
#include "apus/nn/linear.h"
#include "apus/nn/pass_context.h"
#include "apus/nn/placement.h"
#include "apus/ops/joint_home.h"
#include "apus/ops/row_room.h"

namespace apus::nn {

/// What one use of a JointLinear adds to its product.
struct APUS_API JointUse {
  /// [T, O], added to the output of a single projection; undefined: none.
  at::Tensor residual_TO = {};
  /// Makes x again in backward, with the same room, instead of keeping it (light tapes); empty: x is kept.
  /// A hint: where projections are computed one by one, x is kept.
  std::function<at::Tensor()> remake_x = {};
  /// Nobody reads the result: as PassContext::output_is_unread.
  bool output_is_unread = false;
};

/// Projections that read one input, computed as one where a pass allows it: q, k and v; gate and up; a single
/// one.
///
/// It owns no parameter: the projections stay modules of their own under their own names, with their own
/// adapters, copies and boundaries. A pass that needs more of one of them than a weight, a bias and one
/// adapter (several adapters, dropout, copies, a boundary, another dtype) is computed one by one, by their
/// forward(). place() makes the home (ops::JointHome) in which frozen weights lie together on a GPU.
class APUS_API JointLinear final {
 public:
  /// The projections outlive this object and have one in_features.
  explicit JointLinear(std::vector<const Linear*> projections,
                       ops::JointLayout layout = ops::JointLayout::kFused);

  /// Shapes:  x [T, in] -> [T, sum of out], projections side by side; differentiable by the tape.
  at::Tensor forward(const at::Tensor& x_TI, const PassContext& context, const JointUse& use = {}) const;

  /// Room that x's maker should leave beside its rows in this pass, for adapters; empty without a home. Rows
  /// without it are right, and slower.
  ops::RowRoom input_room(const PassContext& context) const;
  /// The same for the rows of the output's gradient.
  ops::RowRoom grad_room(const PassContext& context) const;

  /// On a GPU: makes a home and moves the projections' weights and biases there (their leaves become views),
  /// if all are frozen and of one dtype. Else, and on the CPU, does nothing: place_frozen does.
  void place(const PlaceOptions& options);
  /// The same on any device.
  void make_home(const PlaceOptions& options);

  /// Null before place().
  const std::shared_ptr<ops::JointHome>& home() const { return home_; }

 private:
  bool has_live_home() const;
  bool has_active_adapter(const PassContext& context) const;
  at::Tensor forward_apart(const at::Tensor& x_TI, const PassContext& context, const JointUse& use) const;

  std::vector<const Linear*> projections_;
  ops::JointLayout layout_;
  std::shared_ptr<ops::JointHome> home_;
};

}  // namespace apus::nn
