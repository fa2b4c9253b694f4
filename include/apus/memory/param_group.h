#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/memory/flat_layout.h"

namespace apus::memory {

/// One trainable parameter of a group. The tensor handle is the user's own leaf.
struct APUS_API GroupParameter {
  std::string name;
  at::Tensor tensor;
};

/// Who keeps what of a group on this rank.
struct APUS_API ParamGroupOptions {
  /// Appears in reports and checkpoints.
  std::string name = "group";
  /// This rank in the data-parallel axis.
  int rank = 0;
  /// Size of the data-parallel axis.
  int world = 1;
  /// Masters and moments for the own range only.
  bool shard_optimizer = false;
  /// The accumulator holds the own range only.
  bool shard_gradients = false;
  /// Of the parameters in a pass; absent = as they come.
  std::optional<at::ScalarType> compute_dtype;
  /// Called once with the flat initial values [G] before they are taken: a broadcast makes ranks agree on them.
  std::function<void(const at::Tensor&)> agree_on_values;
};

/// Life of a group's gradients within one micro-batch.
enum class GradState {
  kEmpty,     ///< nothing added yet, no full-size buffer exists
  kPartial,   ///< some parameters have their gradient in the full-size buffer
  kReducing,  ///< a collective reads the full-size buffer
  kSharded,   ///< the accumulator holds the sum so far
};

/// Trainable parameters that share block range, dtype and reduction axes, in flat buffers.
///
/// Construction takes the values of the user's leaves as masters, rounds them into one flat buffer of the compute
/// dtype and makes every leaf a view into it (set_data: the leaf object, its name in user code and its
/// requires_grad stay).
///
/// Buffers: parameters [G] in the compute dtype; the full gradient fp32 [G], alive only while it is being
/// filled and reduced where gradients are sharded; the accumulator fp32 [G] or [G/n]; for the updated range
/// masters and two moments in fp32. With fp32 parameters the master is the parameter itself.
/// Memory: G * (size + 8 + (size < 4 ? 4 : 0)) bytes plus gradients, where 8 and 4 shrink by n under
///         shard_optimizer.
/// Throws: ShapeError if dtypes or devices differ inside the group, or a tensor is not a trainable leaf.
class APUS_API ParamGroup {
 public:
  ParamGroup(std::vector<GroupParameter> parameters, const ParamGroupOptions& options);
  ParamGroup(const ParamGroup&) = delete;
  ParamGroup& operator=(const ParamGroup&) = delete;

  const FlatLayout& layout() const { return layout_; }
  const std::vector<GroupParameter>& parameters() const { return parameters_; }
  const ParamGroupOptions& options() const { return options_; }
  at::ScalarType dtype() const { return flat_params_G_.scalar_type(); }

  /// The range whose gradient this rank counts in the norm, whatever the policy: its shard.
  ElementRange owned_range() const { return layout_.shard_range(options_.rank); }
  /// The range that this rank updates: its shard, or everything where the optimizer is replicated.
  ElementRange update_range() const;

  /// Flat parameters [G] in the compute dtype.
  const at::Tensor& flat_params() const { return flat_params_G_; }
  /// fp32 masters of update_range(); a view of flat_params() where that is fp32.
  const at::Tensor& masters() const { return masters_U_; }
  const at::Tensor& exp_avg() const { return exp_avg_U_; }
  const at::Tensor& exp_avg_sq() const { return exp_avg_sq_U_; }
  /// Rounds the masters of update_range() into flat_params(); nothing to do where they are the parameters.
  void publish_masters();

  GradState grad_state() const { return grad_state_; }
  /// Adds `grad` (any float dtype, undefined = zeros) into parameter `index` of the full gradient.
  void add_grad(int64_t index, const at::Tensor& grad);
  /// Hands the full gradient fp32 [G] to a reduction; parameters never added are zeros.
  at::Tensor begin_reduce();
  /// Ends a reduction. Sharded gradients: adds `reduced_shard` [G/n] to the accumulator and frees the full
  /// buffer. Otherwise the full buffer was reduced in place and is the accumulator; pass undefined.
  void finish_reduce(const at::Tensor& reduced_shard);
  /// Gradient of the step over update_range(), fp32. Only after the step's last finish_reduce.
  at::Tensor reduced_grad() const;
  /// The owned range of reduced_grad(), for the norm.
  at::Tensor owned_grad() const;
  /// Forgets the step's gradients.
  void reset_grads();

 private:
  at::Tensor initial_values() const;
  void install_parameters(const at::Tensor& initial_G);
  void allocate_states(const at::Tensor& initial_G);
  bool keeps_full_gradient() const { return !options_.shard_gradients; }

  std::vector<GroupParameter> parameters_;
  ParamGroupOptions options_;
  FlatLayout layout_;
  at::Tensor flat_params_G_, masters_U_, exp_avg_U_, exp_avg_sq_U_;
  at::Tensor full_grad_G_;     // being filled, or (replicated gradients) the accumulator
  at::Tensor shard_grad_S_;    // accumulator of sharded gradients
  GradState grad_state_ = GradState::kEmpty;
};

}  // namespace apus::memory
