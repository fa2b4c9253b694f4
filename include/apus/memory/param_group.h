#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/memory/flat_layout.h"
#include "apus/memory/group_parameter.h"
#include "apus/memory/residency.h"
#include "apus/memory/sharded_buffer.h"

namespace apus::memory {

/// In which dtypes a group keeps what the optimizer needs.
enum class OptimizerStates {
  kFp32,  ///< masters and moments in fp32
  kBf16,  ///< moments in bf16; the parameters are bf16 and have no other master
};

/// What becomes of an accumulator's old content when a gradient is added.
enum class SumStart {
  kOverwrite,  ///< the first of a step: it is garbage
  kAdd,        ///< it holds the sum so far
};

/// Who adds reduced gradients to accumulators on the host, where that happens beside the caller.
struct APUS_API HostAdder {
  /// sum <- addend, or sum += addend, before `wait` returns. `addend` may lie on the device.
  std::function<void(const at::Tensor& sum, const at::Tensor& addend, SumStart start)> add;
  /// Returns when the sum holds all that was added.
  std::function<void()> wait;
};

/// Who keeps what of a group on this rank.
struct APUS_API ParamGroupOptions {
  /// Appears in reports and checkpoints.
  std::string name = "group";
  /// This rank in the axis over which states are cut.
  int rank = 0;
  /// Size of that axis.
  int world = 1;
  /// Parameters exist for the own range only, and whole while they are gathered.
  bool shard_parameters = false;
  /// Masters and moments for the own range only.
  bool shard_optimizer = false;
  /// The accumulator holds the own range only.
  bool shard_gradients = false;
  /// Of the parameters in a pass; absent = as they come.
  std::optional<at::ScalarType> compute_dtype;
  /// Of gradient buffers and accumulators: fp32 or bf16.
  at::ScalarType grad_dtype = at::kFloat;
  /// Of masters and moments.
  OptimizerStates states = OptimizerStates::kFp32;
  /// Where the buffers lie; absent = where the leaves are. Leaves on the CPU are read in pieces.
  std::optional<at::Device> device;
  /// Which states lie on the host; parameters only where they are sharded, and gradients likewise.
  StateResidency residency = {};
  /// Gradients on the host: who adds them; empty: finish_reduce itself.
  HostAdder host_adder = {};
  /// Called with consecutive pieces of the flat initial values, in the dtype they come in, before they are
  /// taken: a broadcast makes ranks agree on them. Empty: each rank reads what it keeps from its own leaves,
  /// and nothing else of them.
  std::function<void(const at::Tensor&)> agree_on_values;
};

/// Life of a group's gradients within one micro-batch.
enum class GradState {
  kEmpty,     ///< nothing added yet, no full-size buffer exists
  kPartial,   ///< some parameters have their gradient in the full-size buffer
  kReducing,  ///< a collective reads the full-size buffer
  kSharded,   ///< the accumulator holds the sum so far
};

/// Where an operation adds a weight gradient itself.
struct APUS_API GradTarget {
  /// The parameter's shape, in the group's grad_dtype; contiguous, and a view of the full gradient.
  at::Tensor grad;
  /// True: it holds nothing yet, so it must be written whole. False: it must be added to.
  bool is_fresh = false;
};

/// Trainable parameters that share block range, dtype and reduction axes, in flat buffers.
///
/// Construction takes the values of the user's leaves as masters, rounds them into the compute dtype and
/// makes every leaf a view of the group's parameters (set_data: the leaf object, its name in user code and
/// its requires_grad stay). Values pass in pieces of kPieceElements: the flat initial values never exist
/// whole.
///
/// Buffers: parameters in the compute dtype, [G], or [G/n] and a gathered form that comes and goes (see
/// ShardedBuffer); the full gradient [G], alive only while it is being filled and reduced where gradients
/// are sharded; the accumulator [G] or [G/n]; for the updated range masters and two moments in fp32. With
/// fp32 parameters the master is the parameter itself.
/// A state on the host is a buffer of its own in pinned memory, allocated once, the accumulator too. A master
/// is the parameter itself only where both lie on the same side.
/// Memory:      G * (size + 8 + (size < 4 ? 4 : 0)) bytes plus gradients, where 8 and 4 shrink by n under
///              shard_optimizer, and size under shard_parameters. With the optimizer on the host and
///              parameters on the device every parameter has a master: 4 bytes, or 2 with bf16 states.
/// Throws:      ShapeError if dtypes or devices differ inside the group, or a tensor is not a trainable leaf;
///              ConfigError if parameters are sharded and optimizer or gradients are not, bf16 states are
///              wanted for parameters that are not bf16 in a pass, or whole gradients for the host.
class APUS_API ParamGroup {
 public:
  /// Elements that are taken from the leaves at a time.
  static constexpr int64_t kPieceElements = int64_t{16} << 20;

  ParamGroup(std::vector<GroupParameter> parameters, const ParamGroupOptions& options);
  ParamGroup(const ParamGroup&) = delete;
  ParamGroup& operator=(const ParamGroup&) = delete;

  const FlatLayout& layout() const { return layout_; }
  const std::vector<GroupParameter>& parameters() const { return parameters_; }
  const ParamGroupOptions& options() const { return options_; }
  /// Where the parameters are read and gradients arrive.
  at::Device device() const { return device_; }
  /// Where the parameters lie between passes: on the host only if they are sharded.
  Residency parameter_residency() const {
    return options_.shard_parameters ? options_.residency.parameters : Residency::kDevice;
  }
  /// Compute dtype of the parameters.
  at::ScalarType dtype() const { return own_params_U_.scalar_type(); }

  /// Dtype that the parameters came in.
  at::ScalarType source_dtype() const { return source_dtype_; }

  /// The range whose gradient this rank counts in the norm, whatever the policy: its shard.
  ElementRange owned_range() const { return layout_.shard_range(options_.rank); }
  /// The range that this rank updates: its shard, or everything where the optimizer is replicated.
  ElementRange update_range() const;

  /// Flat parameters [G] in the compute dtype; an assertion where they are sharded.
  const at::Tensor& flat_params() const;
  /// Parameters of update_range() in the compute dtype, whatever the policy.
  const at::Tensor& own_params() const { return own_params_U_; }
  /// What is gathered; null where every rank holds the parameters whole.
  ShardedBuffer* buffer() const { return buffer_.get(); }
  /// Masters of update_range(): fp32, or bf16 with bf16 states; own_params() itself where it has that dtype
  /// and lies on the same side.
  const at::Tensor& masters() const { return masters_U_; }
  /// False where masters() is own_params().
  bool has_masters() const;
  const at::Tensor& exp_avg() const { return exp_avg_U_; }
  const at::Tensor& exp_avg_sq() const { return exp_avg_sq_U_; }
  /// Rounds the masters into own_params(), wherever each lies; nothing to do where they are the parameters.
  void publish_masters();

  GradState grad_state() const { return grad_state_; }
  /// Adds `grad` (any float dtype, undefined = zeros) into parameter `index` of the full gradient.
  void add_grad(int64_t index, const at::Tensor& grad);
  /// Where to put a gradient of parameter `index` on the current stream, instead of add_grad. The caller must
  /// fill it: what is_fresh leaves unwritten is garbage.
  GradTarget grad_target(int64_t index);
  /// Hands the full gradient [G] to a reduction; parameters never added are zeros, and so are the gaps
  /// between parameters.
  at::Tensor begin_reduce();
  /// Ends a reduction. Sharded gradients: adds `reduced_shard` [G/n] to the accumulator and frees the full
  /// buffer; on the host the sum is there when accumulated() returns. Otherwise the full buffer was reduced
  /// in place (at least its update_range()) and is the accumulator; pass undefined.
  void finish_reduce(const at::Tensor& reduced_shard);
  /// Sharded gradients of an optimizer that is replicated: the step's gradient [G] from all ranks' shards.
  /// Only after the step's last finish_reduce.
  void spread_grad(const std::function<void(const at::Tensor& full, const at::Tensor& shard)>& all_gather);
  /// The accumulator over what this rank holds: what a sum over replicas adds up, in place. On the host it is
  /// complete when this returns; so are those below.
  at::Tensor accumulated() const;
  /// Gradient of the step over update_range(), in grad_dtype. Only after the step's last finish_reduce.
  at::Tensor reduced_grad() const;
  /// The owned range of reduced_grad(), for the norm.
  at::Tensor owned_grad() const;
  /// Gradients on the host: the accumulator, whatever it holds now. Otherwise undefined.
  at::Tensor host_accumulator() const;
  /// Forgets the step's gradients.
  void reset_grads();

 private:
  void allocate();
  void add_to_shard(const at::Tensor& reduced_shard);
  void take_values();
  void take_piece(const ElementRange& piece, const at::Tensor& values);
  void install_leaves();
  at::Tensor piece_of_leaves(const ElementRange& piece) const;
  at::Tensor full_grad_of(int64_t index);
  void zero_unfilled();
  bool keeps_full_gradient() const { return !options_.shard_gradients; }

  std::vector<GroupParameter> parameters_;
  ParamGroupOptions options_;
  FlatLayout layout_;
  at::ScalarType source_dtype_;
  at::Device device_;
  std::unique_ptr<ShardedBuffer> buffer_;
  at::Tensor flat_params_G_, own_params_U_, masters_U_, exp_avg_U_, exp_avg_sq_U_;
  at::Tensor full_grad_G_;      // being filled, or (replicated gradients) the accumulator
  std::vector<char> filled_;    // whether a parameter has a gradient in it; the others hold garbage
  bool gaps_are_zero_ = false;  // between the parameters of full_grad_G_
  at::Tensor shard_grad_S_;     // accumulator of sharded gradients
  bool shard_holds_sum_ = false;
  GradState grad_state_ = GradState::kEmpty;
};

}  // namespace apus::memory
