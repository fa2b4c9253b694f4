#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "apus/base/api.h"
#include "apus/comm/communicator.h"
#include "apus/memory/grad_sink.h"
#include "apus/memory/param_group.h"
#include "apus/parallel/data_parallel.h"
#include "apus/parallel/shard_policy.h"
#include "apus/parallel/wait_timer.h"

namespace apus::parallel {

/// Where a micro-batch stands in its optimizer step.
enum class MicroBatchPlace { kNotLast, kLast };

/// How gradients travel, besides what the policy says.
struct APUS_API GradReducerOptions {
  at::ScalarType reduce_dtype = at::kFloat;  ///< fp32 or bf16
  bool overlap = true;                       ///< false: each reduction is waited for where it starts
  bool deterministic = false;                ///< see ShardedModelOptions
  /// Called when a group's gradient of the step is complete, in an order that is the same on all ranks.
  std::function<void(const memory::ParamGroup&)> on_step_reduced = {};
};

/// Sums the groups' gradients over the data-parallel ranks as they complete, under a ShardPolicy.
///
/// Collectives: with grad_shard one reduce_scatter of gG bytes a group and reduction (every micro-batch, or
///              the last); otherwise in the last micro-batch one all_reduce, or with opt_shard one
///              reduce_scatter into the own range of the full gradient. reduce_dtype bf16: an all_to_all of
///              the same bytes in place of the reduce_scatter; in place of the all_reduce that and an
///              all_gather, of 2G bytes each. Then, in the last micro-batch and with replicas, one all_reduce
///              of what the rank holds, in fp32 (4G/n where gradients are sharded).
///              All of these over DataParallel::reduction() but the last, which goes over replicate.
///              Deterministic: one all_to_all of gG x replicas bytes over dp a group and micro-batch; in the
///              last one, where the optimizer is replicated, an all_gather of the accumulator. Groups in list
///              order on every rank, whatever the data: the GradSink sees to that.
/// Dtypes:      sums over ranks are made in fp32. reduce_dtype bf16 rounds each rank's gradient once, before
///              it travels, and the sum is added in rank order, on the CPU and on a GPU; it is not rounded
///              again, except where every rank updates all of it (Ddp), before it goes to the others.
/// Memory:      full gradients of kMaxInFlight groups that are being reduced and of those that backward is
///              filling; on Gloo one more for each reduction in flight (reduce_scatter's receive buffer);
///              with reduce_dtype bf16 two copies of 2G bytes, what travels and what arrives; under Ddp one
///              more group's 2G while it is gathered.
/// Scaling:     none; losses are divided by the step's global count before backward.
class APUS_API GradReducer final {
 public:
  /// Reductions that may run at a time before the oldest is waited for.
  static constexpr size_t kMaxInFlight = 2;

  GradReducer(std::vector<memory::ParamGroup*> groups, const ShardPolicy& policy, const DataParallel& ranks,
              const GradReducerOptions& options = {});

  memory::GradSink& sink() { return sink_; }
  /// How long the host has waited for reductions.
  const WaitTimer& waited() const { return waited_; }

  /// Before a backward: which micro-batch of the step it belongs to. Waits for what the one before left
  /// running.
  void begin_micro_batch(MicroBatchPlace place);
  /// Reduces what is left of this micro-batch (unused parameters are zeros). After the last one of a step it
  /// waits for all of it; before, up to kMaxInFlight reductions run on beside the next forward.
  void finish_micro_batch();

 private:
  /// A reduction under way: what must stay alive, and what becomes of it.
  struct Running {
    std::shared_ptr<comm::Work> work;
    std::function<void()> finish;
    const memory::ParamGroup* group = nullptr;
    /// Where the sum goes on to the other ranks: starts that, when the sum's parts are there.
    std::function<std::shared_ptr<comm::Work>()> gather = nullptr;
    bool is_gather = false;
  };

  void reduce(memory::ParamGroup& group);
  bool is_full() const;
  bool stays_as_it_is(const memory::ParamGroup& group) const;
  Running start(memory::ParamGroup& group);
  Running scatter_into_shard(memory::ParamGroup& group, const at::Tensor& full);
  Running reduce_in_place(memory::ParamGroup& group, const at::Tensor& full);
  Running exchange_rounded(memory::ParamGroup& group, const at::Tensor& full);
  Running exchange_in_order(memory::ParamGroup& group, const at::Tensor& full);
  bool adds_up_at_end() const;
  void tell_reduced(const memory::ParamGroup& group);
  void finish_step();
  void sum_over_replicas(memory::ParamGroup& group);
  void wait_oldest();
  void wait_for(const memory::ParamGroup& group);
  void wait_all();

  ShardPolicy policy_;
  DataParallel ranks_;
  GradReducerOptions options_;
  std::vector<memory::ParamGroup*> groups_;
  memory::GradSink sink_;
  std::deque<Running> running_;
  WaitTimer waited_;
  MicroBatchPlace place_ = MicroBatchPlace::kLast;
};

}  // namespace apus::parallel
