#include "apus/parallel/grad_reducer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <utility>

#include "apus/base/error.h"
#include "parallel/rank_sum.h"

namespace apus::parallel {

GradReducer::GradReducer(std::vector<memory::ParamGroup*> groups, const ShardPolicy& policy,
                         const DataParallel& ranks, const GradReducerOptions& options)
    : policy_(policy), ranks_(ranks), options_(options), groups_(groups), sink_(std::move(groups)) {
  APUS_CHECK(options.reduce_dtype == at::kFloat || options.reduce_dtype == at::kBFloat16, ConfigError,
             "gradients travel in fp32 or bf16, not in ", c10::toString(options.reduce_dtype),
             "; change --reduce_dtype");
  sink_.set_on_ready([this](memory::ParamGroup& group) { reduce(group); });
  sink_.set_on_busy([this](memory::ParamGroup& group) { wait_for(group); });
}

void GradReducer::begin_micro_batch(MicroBatchPlace place) {
  wait_all();
  place_ = place;
}

void GradReducer::reduce(memory::ParamGroup& group) {
  const bool every_time = policy_.reduce == ReduceCadence::kMicroBatch || options_.deterministic;
  if (!every_time && place_ == MicroBatchPlace::kNotLast) return;
  while (is_full()) wait_oldest();
  running_.push_back(start(group));
  running_.back().group = &group;
  if (!options_.overlap) wait_all();
}

/// Beside kMaxInFlight sums one gather of a summed gradient may be under way.
bool GradReducer::is_full() const {
  const auto gathers =
      std::count_if(running_.begin(), running_.end(), [](const Running& entry) { return entry.is_gather; });
  return running_.size() - static_cast<size_t>(gathers) >= kMaxInFlight || running_.size() > kMaxInFlight;
}

/// One rank alone has its sum already, unless it is to be rounded as for a journey.
bool GradReducer::stays_as_it_is(const memory::ParamGroup& group) const {
  return ranks_.dp->size() == 1 &&
         (options_.reduce_dtype == at::kFloat || options_.reduce_dtype == group.options().grad_dtype);
}

GradReducer::Running GradReducer::start(memory::ParamGroup& group) {
  const at::Tensor full = group.begin_reduce();
  if (full.numel() == 0) return {nullptr, [&group, full] { group.finish_reduce(full); }, nullptr};
  if (stays_as_it_is(group)) {
    const at::Tensor own = group.options().shard_gradients ? full : at::Tensor();
    return {nullptr, [&group, own] { group.finish_reduce(own); }, nullptr};
  }
  if (options_.deterministic) return exchange_in_order(group, full);
  if (options_.reduce_dtype != at::kFloat) return exchange_rounded(group, full);
  return group.options().shard_gradients ? scatter_into_shard(group, full) : reduce_in_place(group, full);
}

GradReducer::Running GradReducer::scatter_into_shard(memory::ParamGroup& group, const at::Tensor& full) {
  const at::Tensor sent = full.to(options_.reduce_dtype);
  const at::Tensor shard = at::empty({group.layout().shard_elements()}, sent.options());
  return {ranks_.reduction().reduce_scatter(shard, sent), [&group, shard] { group.finish_reduce(shard); }};
}

/// What travels in fewer bits than it is added up in is added here and not on the way, where a communicator
/// may round at every rank. An all_to_all moves the bytes of a reduce_scatter.
GradReducer::Running GradReducer::exchange_rounded(memory::ParamGroup& group, const at::Tensor& full) {
  comm::Communicator& ranks = ranks_.reduction();
  const bool alone = ranks.size() == 1;
  const at::Tensor sent = full.to(options_.reduce_dtype);
  const at::Tensor parts = alone ? sent : at::empty_like(sent);
  Running entry{alone ? nullptr : ranks.all_to_all(parts, sent), nullptr};
  const auto sum = [parts, count = ranks.size()] { return sum_of_ranks(parts, count); };
  if (group.options().shard_gradients) {
    entry.finish = [&group, sum] { group.finish_reduce(sum()); };
    return entry;
  }
  const memory::ElementRange own = group.owned_range();
  if (alone || policy_.opt_shard) {
    entry.finish = [&group, full, own, sum] {
      full.slice(0, own.begin, own.end).copy_(sum());
      group.finish_reduce({});
    };
    return entry;
  }
  // Every rank updates all of it, with the same bits: the own sum is rounded before it goes to the others.
  entry.gather = [&ranks, sent, own, sum] {
    const at::Tensor part = sent.slice(0, own.begin, own.end);
    part.copy_(sum());
    return ranks.all_gather(sent, part);
  };
  entry.finish = [&group, full, sent] {
    if (!sent.is_same(full)) full.copy_(sent);
    group.finish_reduce({});
  };
  return entry;
}

/// The group keeps its full gradient: all of it is summed, or the own range where only that is updated.
GradReducer::Running GradReducer::reduce_in_place(memory::ParamGroup& group, const at::Tensor& full) {
  const at::Tensor sent = full.to(options_.reduce_dtype);
  const auto finish = [&group, full, sent] {
    if (!sent.is_same(full)) full.copy_(sent);
    group.finish_reduce({});
  };
  if (!policy_.opt_shard) return {ranks_.reduction().all_reduce(sent), finish};
  const memory::ElementRange own = group.owned_range();
  return {ranks_.reduction().reduce_scatter(sent.slice(0, own.begin, own.end), sent), finish};
}

/// Every rank gets all ranks' parts of its own shard, and adds them in the order of dp, replicas included.
GradReducer::Running GradReducer::exchange_in_order(memory::ParamGroup& group, const at::Tensor& full) {
  const int64_t ranks = ranks_.dp->size();
  // Shard ranks run fastest in dp: part j of the copies laid end to end is the shard that rank j owns.
  at::Tensor sent = full.to(options_.reduce_dtype);
  if (ranks_.replicas() > 1) sent = sent.repeat({ranks_.replicas()});
  const at::Tensor parts = at::empty_like(sent);
  return {ranks_.exchange().all_to_all(parts, sent),
          [&group, parts, ranks] { group.finish_reduce(sum_of_ranks(parts, ranks)); }};
}

void GradReducer::wait_oldest() {
  Running entry = std::move(running_.front());
  running_.pop_front();
  if (entry.work) waited_.wait(*entry.work);
  if (!entry.gather) {
    entry.finish();
    if (place_ == MicroBatchPlace::kLast && !adds_up_at_end()) tell_reduced(*entry.group);
    return;
  }
  entry.work = std::exchange(entry.gather, nullptr)();
  entry.is_gather = true;
  running_.push_back(std::move(entry));
}

/// Ends a group's reduction, and those that were started before it.
void GradReducer::wait_for(const memory::ParamGroup& group) {
  const auto is_under_way = [&] {
    return std::any_of(running_.begin(), running_.end(),
                       [&](const Running& entry) { return entry.group == &group; });
  };
  while (is_under_way()) wait_oldest();
}

void GradReducer::wait_all() {
  while (!running_.empty()) wait_oldest();
}

void GradReducer::finish_micro_batch() {
  sink_.flush();
  if (place_ == MicroBatchPlace::kNotLast) return;  // the next forward hides what is still running
  wait_all();
  finish_step();
}

/// Replicas add what they hold in fp32, whatever they hold it in.
void GradReducer::sum_over_replicas(memory::ParamGroup& group) {
  const at::Tensor held = group.accumulated();
  const at::Tensor sum = held.to(group.device(), at::kFloat);
  waited_.wait(*ranks_.replicate->all_reduce(sum));
  if (!sum.is_same(held)) held.copy_(sum);
}

/// Whether a step's sum is complete only after finish_step.
bool GradReducer::adds_up_at_end() const {
  return options_.deterministic ? !policy_.opt_shard : ranks_.replicate != nullptr;
}

void GradReducer::tell_reduced(const memory::ParamGroup& group) {
  if (options_.on_step_reduced) options_.on_step_reduced(group);
}

/// What happens once a step, when all of it has been added up.
void GradReducer::finish_step() {
  for (memory::ParamGroup* group : groups_) {
    if (group->layout().padded_elements() == 0) continue;
    if (ranks_.replicate && !options_.deterministic) sum_over_replicas(*group);
    if (options_.deterministic && !policy_.opt_shard) {
      group->spread_grad([this](const at::Tensor& full, const at::Tensor& shard) {
        waited_.wait(*ranks_.shard->all_gather(full, shard));
      });
    }
    if (adds_up_at_end()) tell_reduced(*group);
  }
}

}  // namespace apus::parallel
