#include "apus/parallel/grad_reducer.h"

#include <ATen/ops/empty.h>

#include <utility>

namespace apus::parallel {

GradReducer::GradReducer(std::vector<memory::ParamGroup*> groups, const ShardPolicy& policy, comm::Communicator& dp)
    : policy_(policy), dp_(dp), sink_(std::move(groups)) {
  sink_.set_on_ready([this](memory::ParamGroup& group) { reduce(group); });
}

void GradReducer::begin_micro_batch(MicroBatchPlace place) { place_ = place; }

void GradReducer::reduce(memory::ParamGroup& group) {
  if (!policy_.grad_shard && place_ == MicroBatchPlace::kNotLast) return;
  if (running_.size() >= kMaxInFlight) wait_oldest();
  Running entry{&group, {}, nullptr};
  const at::Tensor full = group.begin_reduce();
  if (policy_.grad_shard) {
    entry.shard = at::empty({group.layout().shard_elements()}, full.options());
    entry.work = dp_.reduce_scatter(entry.shard, full);
  } else {
    entry.work = dp_.all_reduce(full);
  }
  running_.push_back(std::move(entry));
}

void GradReducer::wait_oldest() {
  Running entry = std::move(running_.front());
  running_.pop_front();
  waited_.wait(*entry.work);
  entry.group->finish_reduce(entry.shard);
}

void GradReducer::finish_micro_batch() {
  sink_.flush();
  while (!running_.empty()) wait_oldest();
}

}  // namespace apus::parallel
