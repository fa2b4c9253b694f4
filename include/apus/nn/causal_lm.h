#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/nn/module.h"
#include "apus/nn/pass_context.h"
#include "apus/nn/placement.h"
#include "apus/nn/read_rows.h"
#include "apus/nn/shard_plan.h"

namespace apus::nn {

/// One repeated layer of a model: the unit of recompute, gathering and pipeline splits.
class APUS_API Block : public Module {
 public:
  /// Shapes:  hidden [T, D] -> [T, D]; differentiable by the tape in hidden and in the parameters.
  /// Reads nothing that changes between forward and a recompute of it but its parameters.
  virtual at::Tensor forward(const at::Tensor& hidden_TD, const PassContext& context) = 0;

  /// The rows of forward() that are read, for the last block of a pass. By default all are made and these
  /// selected; a block that knows where rows no longer meet leaves the others out from there on, forward and
  /// backward.
  /// Shapes:  hidden [T, D] -> [M, D]; differentiable as forward().
  virtual at::Tensor forward_read(const at::Tensor& hidden_TD, const ReadRows& read,
                                  const PassContext& context);

  /// See CausalLm::place. A block that knows how its parameters are read together lays them so.
  virtual void place(const PlaceOptions& options);
};

/// What a causal language model offers to the trainers: token rows in, hidden rows through ordered blocks,
/// and a vocabulary projection that the loss applies itself (so that logits never exist whole).
///
/// Written for one device; parallelism is applied from outside over the parameter lists.
class APUS_API CausalLm : public Module {
 public:
  /// Fills what all blocks share in a pass (rotary tables for context.rows).
  virtual void prepare(PassContext& context) = 0;

  /// Shapes:  tokens int64 [T] -> [T, D].
  virtual at::Tensor embed(const at::Tensor& tokens_T, const PassContext& context) = 0;

  /// The layers in the order in which a pass runs them; the pointers live as long as the model.
  virtual std::vector<Block*> blocks() = 0;

  /// What stands between the last block and the projection (the final norm).
  /// Shapes:  hidden [M, D] -> [M, D], row by row, so it may be called on selected rows.
  virtual at::Tensor final_norm(const at::Tensor& hidden_MD, const PassContext& context) = 0;

  /// The vocabulary projection [V, D] of a pass: the embedding's own tensor where the two are tied, an active
  /// adapter's copy where it has one (modules_to_save).
  virtual at::Tensor head_weight(const PassContext& context) const = 0;

  /// Parameters that embed() reads, under full names.
  virtual std::vector<NamedParameter> embed_parameters() = 0;

  /// Parameters of blocks()[index], under full names.
  virtual std::vector<NamedParameter> block_parameters(int64_t index) = 0;

  /// Parameters that final_norm() and head_weight() read; a tied embedding is listed here too.
  virtual std::vector<NamedParameter> head_parameters() = 0;

  /// How tensor parallelism would cut each parameter.
  virtual ShardPlan shard_plan() const = 0;

  /// Moves the frozen parameters to a device, block by block, after adapters were added and before an engine
  /// takes the trainable ones. They may be mappings of files: nothing exists twice but what is being moved.
  /// Leaves stay the same objects; on a GPU a projection's weight may become a view with rows apart.
  virtual void place(const PlaceOptions& options);

  virtual int64_t hidden_size() const = 0;
  virtual int64_t vocab_size() const = 0;

  /// Whole logits [T, V] in the weights' dtype: for tests, tools and short prompts, never for training.
  at::Tensor logits(const at::Tensor& tokens_T, PassContext context);
};

}  // namespace apus::nn
