#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "apus/base/api.h"
#include "apus/memory/param_group.h"
#include "apus/memory/residency.h"
#include "apus/nn/module.h"
#include "apus/parallel/block_runner.h"
#include "apus/parallel/shard_policy.h"

namespace apus::parallel {

/// Where parameters live between passes.
enum class Placement {
  /// As the policy says: sharded under param_shard. Trainable parameters that are at most a quarter of the
  /// frozen ones (adapters) are replicated under every policy, in one group.
  kByPolicy,
  kReplicated,
  kSharded,
};

/// Which values training starts from.
enum class InitialValues {
  kRankZero,  ///< rank 0's trainable parameters are broadcast
  kOwn,  ///< each rank reads what it keeps from its own leaves, which are equal (files): nothing else is read
};

/// What a sharded model is for.
enum class ModelUse {
  kTraining,   ///< something is trainable
  kReference,  ///< nothing is; it only runs, without gradients (DPO's second model)
};

/// What the optimizer and the norm do with one parameter.
struct APUS_API ParameterSettings {
  /// Multiplies the learning rate.
  double lr_scale = 1.0;
  /// Multiplies the weight decay; absent: 1 for matrices, 0 for norms and biases.
  std::optional<double> decay_scale;
  /// Multiplies the parameter's squares in the gradient norm, e.g. 0 on ranks where another one counts it.
  double norm_weight = 1.0;
};

/// How a model is run and cut over the data-parallel ranks. recompute, recompute_blocks, head_chunk_tokens
/// and skip_unread_rows act in ShardedModel; a user of ShardedUnits says so at each run().
struct APUS_API ShardedModelOptions {
  ShardPolicy policy = Zero2{};
  /// For the blocks; embedding and head keep their tape.
  Recompute recompute = Recompute::kBlock;
  /// Blocks (by index) that `recompute` applies to; absent: all.
  std::optional<std::vector<int64_t>> recompute_blocks;
  /// Where what a recomputed block keeps (its input) lies between forward and backward.
  memory::Residency activations = memory::Residency::kDevice;
  /// Trainable parameters of neighbouring units share a group (one collective) up to this many elements,
  /// where parameters are not sharded.
  int64_t bucket_elements = 200'000'000;
  /// Dtype of trainable parameters in a pass; absent = as they come. Masters keep the values that came.
  std::optional<at::ScalarType> compute_dtype;
  /// Tokens whose logits exist at a time in the loss head; 0 = as many as ops::TokenLogProbsOptions takes (on
  /// a GPU about 8k of a large vocabulary: its products run fastest so).
  int64_t head_chunk_tokens = 1024;
  /// Rows that the loss does not read are left out of the last block behind its attention, where they are an
  /// eighth of all or more; false: all are made. The numbers are equal but for rounding.
  bool skip_unread_rows = true;
  /// Dtype of frozen floating parameters; absent = as they come.
  std::optional<at::ScalarType> frozen_dtype;
  /// Where the engine's buffers lie, and with them every parameter; absent = where the parameters are. From
  /// the CPU (mapped files) values are copied in pieces, and a gradient's place moves with its parameter.
  /// Frozen parameters that every rank holds whole are moved one by one where they are elsewhere.
  std::optional<at::Device> device;
  /// Optimizer on the host: elements that are updated at a time, before their copy back starts. Speed only.
  int64_t host_piece_elements = int64_t{8} << 20;
  /// Optimizer on the host, gradients and parameters on the device: share of the elements that the device
  /// updates (HostUpdateOptions::device_share); absent: what makes steps shortest. Speed only.
  std::optional<double> host_device_share = {};
  /// Dtypes of masters and moments. kBf16: the parameters in a pass must be bf16, and are their own masters.
  memory::OptimizerStates optimizer_states = memory::OptimizerStates::kFp32;
  /// Of the random numbers that round bf16 states.
  uint64_t rounding_seed = 42;
  /// Dtype in which gradients travel: fp32 or bf16. Each rank's are rounded to it once; sums over ranks are
  /// made in fp32 (see GradReducer).
  at::ScalarType reduce_dtype = at::kFloat;
  /// Dtype of gradient buffers and accumulators: fp32 or bf16.
  at::ScalarType grad_accum_dtype = at::kFloat;
  Placement frozen = Placement::kByPolicy;
  Placement trainable = Placement::kByPolicy;
  InitialValues initial_values = InitialValues::kRankZero;
  ModelUse use = ModelUse::kTraining;
  /// Reductions run beside backward and gathers ahead of use; false: each is waited for where it starts.
  bool overlap_comm = true;
  /// The same bits under every policy for the same world, micro-batches, device kind and versions: gradients
  /// reduce after every micro-batch by all_to_all and a sum in rank order over all data-parallel ranks; the
  /// norm's block sums are gathered and added in order. More traffic: see docs/design/engine.md.
  bool deterministic = false;
  /// Per parameter; empty: the defaults.
  std::function<ParameterSettings(const nn::NamedParameter&)> settings;
  /// Fills released slots with NaN: for tests that nothing reads them.
  bool poison_released = false;
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
  /// What the losses were multiplied by before backward (fp16): gradients and their norm are divided by it.
  double loss_scale = 1.0;
  /// One number on the engine's device, e.g. of a loss that is not finite; not 0 on any rank: the update
  /// changes nothing on all of them. Undefined = 0; on all ranks or on none.
  at::Tensor found_inf;
};

}  // namespace apus::parallel
