#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "apus/base/api.h"
#include "apus/comm/communicator.h"
#include "apus/comm/device_mesh.h"
#include "apus/nn/causal_lm.h"
#include "apus/parallel/engine_options.h"
#include "apus/parallel/sharded_units.h"

namespace apus::parallel {

/// What the loss head is asked for beside log-probabilities; see ops::TokenLogProbsOptions.
struct APUS_API TokenLogProbsWish {
  at::Tensor is_argmax_M = {};
  at::Tensor row_scale_M = {};
};

/// A causal language model on the engine: embedding, blocks and head as the units of ShardedUnits, whose
/// contract holds here.
///
/// A step is: forward(), token_log_probs(), a loss, backward() for each of the step's micro-batches, then
/// update(). Every rank runs the same number of micro-batches; one without rows runs an empty batch. Under
/// ModelUse::kReference it only runs, without gradients: backward() and update() throw. The model and the
/// communicators must outlive this object. Collectives, Determinism, Throws: as ShardedUnits.
class APUS_API ShardedModel final {
 public:
  /// All ranks of `dp` shard.
  ShardedModel(nn::CausalLm& model, comm::Communicator& dp, const ShardedModelOptions& options);
  /// Over dp_shard and dp_replicate of a mesh (HybridFsdp).
  ShardedModel(nn::CausalLm& model, const comm::DeviceMesh& mesh, const ShardedModelOptions& options);
  ~ShardedModel();
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;

  nn::CausalLm& model() { return model_; }
  /// All data-parallel ranks.
  comm::Communicator& dp() { return *units_.ranks().dp; }
  const ShardedModelOptions& options() const { return units_.options(); }
  /// The engine below.
  ShardedUnits& units() { return units_; }

  /// tokens int64 [T] -> hidden rows [T, D] before the final norm. Fills the context's rotary tables, and its
  /// gradients (null in grad-free passes and for a reference model).
  at::Tensor forward(const at::Tensor& tokens_T, nn::PassContext& context);
  /// The rows of forward() that are read: [M, D]. The last block leaves out what it can of the others, see
  /// ShardedModelOptions::skip_unread_rows and nn::Block::forward_read.
  at::Tensor forward_read(const at::Tensor& tokens_T, const nn::ReadRows& read, nn::PassContext& context);

  /// Log-probabilities fp32 [M] of targets int64 [M], each predicted by its hidden row [M, D].
  at::Tensor token_log_probs(const at::Tensor& hidden_MD, const at::Tensor& targets_M,
                             const nn::PassContext& context, const TokenLogProbsWish& wish = {});

  /// See ShardedUnits.
  void backward(const at::Tensor& loss, MicroBatchPlace place) { units_.backward(loss, place); }
  double update(const UpdateOptions& options) { return units_.update(options); }
  at::Tensor update_async(const UpdateOptions& options) { return units_.update_async(options); }
  int64_t settle_updates() { return units_.settle_updates(); }
  void finish_update() { units_.finish_update(); }
  int64_t updates() const { return units_.updates(); }
  double comm_wait_ms() const { return units_.comm_wait_ms(); }
  int64_t trainable_elements() const { return units_.trainable_elements(); }
  const std::vector<std::unique_ptr<memory::ParamGroup>>& groups() const { return units_.groups(); }
  std::vector<nn::NamedParameter> gather_masters() { return units_.gather_masters(); }
  std::vector<nn::NamedParameter> gather_all() { return units_.gather_all(); }
  std::vector<GroupState> optimizer_states() { return units_.optimizer_states(); }
  void load_finished(int64_t updates) { units_.load_finished(updates); }

 private:
  ShardedModel(nn::CausalLm& model, const DataParallel& ranks, const ShardedModelOptions& options);

  memory::GradSink* sink_of_pass();
  bool skips_rows(int64_t read, int64_t all) const;
  at::Tensor run_pass(const at::Tensor& tokens_T, const nn::ReadRows* read, nn::PassContext& context);

  nn::CausalLm& model_;
  ShardedUnits units_;
  std::vector<nn::Block*> blocks_;
  std::vector<Recompute> recompute_;
};

}  // namespace apus::parallel
