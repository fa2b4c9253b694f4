#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "apus/base/api.h"
#include "apus/comm/communicator.h"
#include "apus/memory/grad_sink.h"
#include "apus/memory/param_group.h"
#include "apus/parallel/shard_policy.h"
#include "apus/parallel/wait_timer.h"

namespace apus::parallel {

/// Where a micro-batch stands in its optimizer step.
enum class MicroBatchPlace { kNotLast, kLast };

/// Sums the groups' gradients over the data-parallel ranks as they complete, under a ShardPolicy.
///
/// Collectives: grad_shard: one reduce_scatter of 4G bytes a group and micro-batch. Otherwise one all_reduce of
///              4G bytes a group, in the last micro-batch of a step only. Groups in list order on every rank,
///              whatever the data: the GradSink sees to that.
/// Memory:      grad_shard: full fp32 gradients of kMaxInFlight groups that are being reduced and of those that
///              backward is filling; on Gloo one more for each reduction in flight (reduce_scatter's receive buffer).
/// Scaling:     none; losses are divided by the step's global count before backward.
class APUS_API GradReducer final {
 public:
  /// Reductions that may run at a time before the oldest is waited for.
  static constexpr size_t kMaxInFlight = 2;

  GradReducer(std::vector<memory::ParamGroup*> groups, const ShardPolicy& policy, comm::Communicator& dp);

  memory::GradSink& sink() { return sink_; }
  /// How long the host has waited for reductions.
  const WaitTimer& waited() const { return waited_; }

  /// Which micro-batch of the step follows: only the last one reduces replicated gradients.
  void begin_micro_batch(MicroBatchPlace place);
  /// Reduces what is left of this micro-batch (unused parameters are zeros) and waits for all of it.
  void finish_micro_batch();

 private:
  struct Running {
    memory::ParamGroup* group;
    at::Tensor shard;
    std::shared_ptr<comm::Work> work;
  };

  void reduce(memory::ParamGroup& group);
  void wait_oldest();

  ShardPolicy policy_;
  comm::Communicator& dp_;
  memory::GradSink sink_;
  std::deque<Running> running_;
  WaitTimer waited_;
  MicroBatchPlace place_ = MicroBatchPlace::kLast;
};

}  // namespace apus::parallel
