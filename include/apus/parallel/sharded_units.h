#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/comm/communicator.h"
#include "apus/memory/frozen_group.h"
#include "apus/memory/param_group.h"
#include "apus/nn/module.h"
#include "apus/parallel/block_runner.h"
#include "apus/parallel/data_parallel.h"
#include "apus/parallel/engine_options.h"
#include "apus/parallel/gatherer.h"
#include "apus/parallel/grad_reducer.h"
#include "apus/parallel/group_plan.h"
#include "apus/parallel/step_update.h"

namespace apus::parallel {

/// The optimizer's states of one group on this rank, for checkpoints: views of the live buffers.
struct APUS_API GroupState {
  std::string group;
  uint64_t layout_fingerprint = 0;
  int64_t padded_elements = 0;
  /// The range that the tensors cover: this rank's shard.
  memory::ElementRange owned;
  /// [owned.size()] on the engine's device, or the host with the optimizer there; fp32, or bf16 under
  /// OptimizerStates::kBf16.
  at::Tensor master, exp_avg, exp_avg_sq;
};

/// The engine: units of any model, written for one device, trained over data-parallel ranks under a
/// ShardPolicy.
///
/// A unit is a list of parameters and, at run(), a function from tensor to tensor that reads them: layers of
/// a torch::nn::Module, blocks of an own model. ShardedModel is this for a nn::CausalLm. A step is: run() of
/// the units in order, a loss, backward() for each of the step's micro-batches, then update(). Every rank
/// makes the same calls; one without rows passes empty batches. Construction takes the parameters with
/// requires_grad as trainable and makes the leaves views of the engine's buffers. Outside of run() a sharded
/// parameter has no values: touching it throws c10::Error, which names the unit. Modules, parameters and
/// communicators must outlive this object.
/// Collectives: construction: one all_gather of 8 bytes (the plan's hash); with InitialValues::kRankZero a
///              broadcast of the trainable parameters; on GPUs, where these are sharded and overlap_comm is
///              on, a second group of dp_shard's ranks for reductions. run() and backward(): as the policy
///              says. update(): the norm, then as the policy says (StepUpdate).
/// Determinism: run-to-run, for the same world and micro-batches; ShardedModelOptions::deterministic makes
///              bits independent of the policy.
/// Throws:      ConfigError if an option does not fit, or ranks plan differently; CommError from collectives.
class APUS_API ShardedUnits final {
 public:
  ShardedUnits(ModelUnits model, const DataParallel& ranks, const ShardedModelOptions& options);
  ~ShardedUnits();
  ShardedUnits(const ShardedUnits&) = delete;
  ShardedUnits& operator=(const ShardedUnits&) = delete;

  const ShardedModelOptions& options() const { return options_; }
  const DataParallel& ranks() const { return ranks_; }
  size_t size() const { return units_.size(); }

  /// Runs unit `unit` (its ordinal) on `input`; differentiable in it. `recompute` kNone unless told
  /// otherwise.
  at::Tensor run(size_t unit, const at::Tensor& input, BlockRunner::Function function,
                 Recompute recompute = Recompute::kNone);

  /// Back-propagates one micro-batch's share of the step's loss and reduces as the policy says.
  /// A loss without a tape (nothing supervised) contributes zeros.
  void backward(const at::Tensor& loss, MicroBatchPlace place);

  /// Clips, updates, gathers. Returns the gradient norm before clipping; the same on every rank. A norm that
  /// is not finite changes nothing; the caller decides. Parameters that every rank holds whole and updates in
  /// part (Zero1, Zero2, adapters) are on their way when it returns: run() waits for those of its unit,
  /// everything here that reads them for all. Code that reads a leaf outside of a unit calls finish_update()
  /// first. With the optimizer on the host it returns when the norm is known and the updates are under way;
  /// an error there comes out of a later call.
  double update(const UpdateOptions& options);

  /// The same without a wait for a GPU (but with the optimizer on the host, which must know the norm and
  /// counts right): returns the norm, fp64 [1] on the engine's device. There, a norm that is not finite (or
  /// UpdateOptions::found_inf) keeps every write from happening; updates() counts the step all the same until
  /// settle_updates(), or update(), learns of it. On the CPU it is update().
  at::Tensor update_async(const UpdateOptions& options);

  /// After update_async: corrects updates() by what was skipped on the device. The host waits for it.
  int64_t settle_updates();

  /// Where operations inside run() may add weight gradients themselves.
  memory::GradSink& grad_sink() { return reducer_->sink(); }

  /// Waits until the parameters of the last update are there.
  void finish_update();

  /// Updates made so far, as far as the host knows (see update_async).
  int64_t updates() const { return updates_; }
  /// Milliseconds that the host has waited for this engine's collectives so far.
  double comm_wait_ms() const;
  /// What the last update but one took of states on the host that the device shares in; zeros where none do.
  HostUpdateTimes host_update_times() const;
  /// Trainable elements, each counted once, without padding.
  int64_t trainable_elements() const;
  /// The trainable groups, in the order in which they are reduced.
  const std::vector<std::unique_ptr<memory::ParamGroup>>& groups() const { return groups_; }
  /// The frozen groups that are sharded.
  const std::vector<std::unique_ptr<memory::FrozenGroup>>& frozen_groups() const { return frozen_; }

  /// Trainable parameters by name, masters (fp32, or bf16 under OptimizerStates::kBf16) in full on every
  /// rank. Collectives: one all_gather of 4G bytes a group where masters are sharded (not where they are
  /// gathered
  ///              fp32 parameters anyway).
  std::vector<nn::NamedParameter> gather_masters();
  /// All parameters by name: trainable ones as gather_masters, frozen ones as they are. Sharded frozen
  /// parameters are copies. Collectives: gather_masters, and one all_gather a sharded frozen group.
  std::vector<nn::NamedParameter> gather_all();

  /// This rank's shard of masters and moments.
  std::vector<GroupState> optimizer_states();
  /// After the states of optimizer_states() were filled from a checkpoint: spreads them to whatever this
  /// policy replicates and makes the parameters equal the masters.
  /// Collectives: all_gathers over the groups.
  void load_finished(int64_t updates);

 private:
  void build_groups(Placement placement);
  void build_frozen(Placement placement);
  void part_reductions();
  void build_gatherer();
  memory::HostAdder host_adder(size_t group);
  at::Tensor gathered(int64_t elements, const at::Tensor& own);
  void list_groups();
  Placement trainable_placement() const;
  Placement frozen_placement() const;

  ModelUnits model_;
  DataParallel ranks_;
  ShardedModelOptions options_;
  std::vector<Unit> units_;
  std::vector<std::unique_ptr<memory::ParamGroup>> groups_;
  std::vector<std::vector<size_t>> unit_groups_;  // ordinals of the groups that a unit's parameters are in
  std::vector<std::unique_ptr<memory::FrozenGroup>> frozen_;
  std::vector<size_t> frozen_unit_;  // of frozen_[i]
  std::unique_ptr<comm::Communicator> reduce_ranks_;
  std::unique_ptr<GradReducer> reducer_;
  std::unique_ptr<Gatherer> gatherer_;
  std::unique_ptr<BlockRunner> runner_;
  std::unique_ptr<StepUpdate> update_;
  int64_t updates_ = 0;
  WaitTimer waited_;
};

}  // namespace apus::parallel
