#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/comm/communicator.h"
#include "apus/memory/param_group.h"
#include "apus/nn/causal_lm.h"
#include "apus/parallel/block_runner.h"
#include "apus/parallel/grad_reducer.h"
#include "apus/parallel/shard_policy.h"
#include "apus/parallel/wait_timer.h"

namespace apus::parallel {

/// How a model is run and cut over the data-parallel ranks.
struct APUS_API ShardedModelOptions {
  ShardPolicy policy = Zero2{};
  /// For the blocks; embedding and head keep their tape.
  Recompute recompute = Recompute::kBlock;
  /// Trainable parameters of neighbouring units share a group (one collective) up to this many elements.
  int64_t bucket_elements = 200'000'000;
  /// Dtype of trainable parameters in a pass; absent = as they come. Masters keep the values that came.
  std::optional<at::ScalarType> compute_dtype;
  /// Tokens whose logits exist at a time in the loss head.
  int64_t head_chunk_tokens = 1024;
};

/// AdamW and clipping of one step.
struct APUS_API UpdateOptions {
  double lr = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  /// On matrices; none on norms and biases.
  double weight_decay = 0.1;
  /// 0 or less: no clipping.
  double max_grad_norm = 1.0;
};

/// The optimizer's states of one group on this rank, for checkpoints: views of the live buffers.
struct APUS_API GroupState {
  std::string group;
  uint64_t layout_fingerprint = 0;
  int64_t padded_elements = 0;
  /// The range that the tensors cover: this rank's shard.
  memory::ElementRange owned;
  /// Fp32 [owned.size()].
  at::Tensor master, exp_avg, exp_avg_sq;
};

/// A causal language model whose trainable parameters live in sharded groups: forward and backward through
/// one BlockRunner, reduction as gradients complete, clipping and a fused AdamW over the shards.
///
/// A step is: forward(), a loss, backward() for each of the step's micro-batches, then update(). Every rank
/// runs the same number of micro-batches; one without rows runs an empty batch.
/// Construction takes the parameters with requires_grad as trainable, broadcasts rank 0's values, and makes
/// the leaves views of flat buffers. The model and the communicator must outlive this object.
/// Collectives: construction: one broadcast of G elements a group, in the dtype they come in. backward: as the policy says.
///              update: one all_reduce of 8 bytes (the norm), then as the policy says.
/// Determinism: run-to-run, for the same world and micro-batches.
/// Throws:      ConfigError if nothing is trainable; CommError from collectives.
class APUS_API ShardedModel final {
 public:
  ShardedModel(nn::CausalLm& model, comm::Communicator& dp, const ShardedModelOptions& options);
  ~ShardedModel();
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;

  nn::CausalLm& model() { return model_; }
  comm::Communicator& dp() { return dp_; }
  const ShardedModelOptions& options() const { return options_; }

  /// tokens int64 [T] -> hidden rows [T, D] before the final norm. Fills the context's rotary tables.
  at::Tensor forward(const at::Tensor& tokens_T, nn::PassContext& context);

  /// Log-probabilities fp32 [M] of targets int64 [M], each predicted by its hidden row [M, D].
  at::Tensor token_log_probs(const at::Tensor& hidden_MD, const at::Tensor& targets_M,
                             const nn::PassContext& context);

  /// Back-propagates one micro-batch's share of the step's loss and reduces as the policy says.
  /// A loss without a tape (nothing supervised) contributes zeros.
  void backward(const at::Tensor& loss, MicroBatchPlace place);

  /// Clips, updates, gathers. Returns the gradient norm before clipping; the same on every rank.
  /// A norm that is not finite changes nothing; the caller decides.
  double update(const UpdateOptions& options);

  /// Updates made so far: the t of AdamW's bias correction.
  int64_t updates() const { return updates_; }

  /// Milliseconds that the host has waited for this engine's collectives so far.
  double comm_wait_ms() const { return reducer_->waited().milliseconds() + waited_.milliseconds(); }

  /// Trainable elements, each counted once, without padding.
  int64_t trainable_elements() const;

  /// The groups, in the order in which they are reduced.
  const std::vector<std::unique_ptr<memory::ParamGroup>>& groups() const { return groups_; }

  /// Trainable parameters by name, fp32 masters in full on every rank.
  /// Collectives: one all_gather of 4G bytes a group where masters are sharded and not the parameters.
  std::vector<nn::NamedParameter> gather_masters();

  /// This rank's shard of masters and moments.
  std::vector<GroupState> optimizer_states();
  /// After the states of optimizer_states() were filled from a checkpoint: spreads them to whatever this
  /// policy replicates and makes the parameters equal the masters.
  /// Collectives: all_gathers over the groups.
  void load_finished(int64_t updates);

 private:
  struct Units;

  void build_groups();
  double reduce_norm();
  void update_group(memory::ParamGroup& group, const UpdateOptions& options, double clip);
  void gather_parameters();
  void gather_in_place(const at::Tensor& full, const memory::ElementRange& own);

  nn::CausalLm& model_;
  comm::Communicator& dp_;
  ShardedModelOptions options_;
  std::vector<nn::Block*> blocks_;
  std::unique_ptr<Units> units_;
  std::vector<std::unique_ptr<memory::ParamGroup>> groups_;
  std::unique_ptr<GradReducer> reducer_;
  std::unique_ptr<BlockRunner> runner_;
  int64_t updates_ = 0;
  WaitTimer waited_;
};

}  // namespace apus::parallel
