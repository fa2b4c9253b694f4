#include "apus/parallel/step_update.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "apus/optim/decay_rule.h"

namespace apus::parallel {
namespace {

constexpr int64_t kBlock = memory::FlatLayout::kBlockElements;

ParameterSettings settings_of(const memory::GroupParameter& parameter, const ShardedModelOptions& options) {
  ParameterSettings settings;
  if (options.settings) settings = options.settings({parameter.name, parameter.tensor});
  if (!settings.decay_scale) {
    settings.decay_scale = optim::takes_weight_decay(parameter.name, parameter.tensor.dim()) ? 1.0 : 0.0;
  }
  return settings;
}

}  // namespace

StepUpdate::StepUpdate(std::vector<memory::ParamGroup*> groups, const DataParallel& ranks,
                       const ShardedModelOptions& options)
    : ranks_(ranks), deterministic_(options.deterministic) {
  for (memory::ParamGroup* group : groups) plan_group(*group, options);
  std::stable_sort(sections_.begin(), sections_.end(), [](const Section& a, const Section& b) {
    return std::make_tuple(-a.unit, a.dtype) < std::make_tuple(-b.unit, b.dtype);
  });
}

void StepUpdate::plan_group(memory::ParamGroup& group, const ShardedModelOptions& options) {
  GroupPlan plan{&group, {}, sums_};
  const auto& parameters = group.parameters();
  for (size_t index = 0; index < parameters.size(); ++index) {
    const memory::ElementRange range = group.layout().range_of(static_cast<int64_t>(index));
    plan.segments.push_back({range, settings_of(parameters[index], options)});
    if (index == 0 || parameters[index - 1].unit != parameters[index].unit) {
      const int64_t block = range.begin / kBlock;
      if (index > 0) sections_.back().last_block = block;
      sections_.push_back({parameters[index].unit, group.source_dtype(), plans_.size(), block, block});
    }
  }
  sections_.back().last_block = group.layout().padded_elements() / kBlock;
  sums_ += group.layout().shard_elements() / kBlock;
  plans_.push_back(std::move(plan));
}

std::vector<double> StepUpdate::owned_block_sums(const GroupPlan& plan) const {
  const memory::ElementRange owned = plan.group->owned_range();
  std::vector<WeightedRun> runs;
  for (const Segment& segment : plan.segments) {
    const memory::ElementRange part = memory::intersect(segment.range, owned);
    if (segment.settings.norm_weight == 1.0 || part.size() == 0) continue;
    runs.push_back({part.begin - owned.begin, part.end - owned.begin, segment.settings.norm_weight});
  }
  return block_sums_of_squares(plan.group->owned_grad(), runs);
}

double StepUpdate::norm() {
  return std::sqrt(deterministic_ ? sum_in_order() : sum_over_ranks());
}

double StepUpdate::sum_over_ranks() {
  double sum = 0.0;
  for (const GroupPlan& plan : plans_) {
    const std::vector<double> sums = owned_block_sums(plan);
    sum = std::accumulate(sums.begin(), sums.end(), sum);
  }
  const at::Tensor total = at::full({1}, sum, at::kDouble);
  waited_.wait(*ranks_.shard->all_reduce(total));
  return *total.const_data_ptr<double>();
}

double StepUpdate::sum_in_order() {
  const at::Tensor own = at::empty({sums_}, at::kDouble);
  double* next = own.mutable_data_ptr<double>();
  for (const GroupPlan& plan : plans_) {
    const std::vector<double> sums = owned_block_sums(plan);
    next = std::copy(sums.begin(), sums.end(), next);
  }
  const at::Tensor all = at::empty({ranks_.shard->size() * sums_}, at::kDouble);
  waited_.wait(*ranks_.shard->all_gather(all, own));
  const double* values = all.const_data_ptr<double>();
  double sum = 0.0;
  for (const Section& section : sections_) {
    const GroupPlan& plan = plans_[section.plan];
    const int64_t blocks = plan.group->layout().shard_elements() / kBlock;
    for (int64_t block = section.first_block; block < section.last_block; ++block) {
      sum += values[block / blocks * sums_ + plan.first_sum + block % blocks];
    }
  }
  return sum;
}

void StepUpdate::apply(const UpdateOptions& options, double clip, int64_t step) {
  for (const GroupPlan& plan : plans_) update_group(plan, options, clip, step);
}

void StepUpdate::update_group(const GroupPlan& plan, const UpdateOptions& options, double clip,
                              int64_t step) {
  memory::ParamGroup& group = *plan.group;
  const memory::ElementRange updated = group.update_range();
  std::vector<optim::Segment> segments;
  for (const Segment& segment : plan.segments) {
    const memory::ElementRange part = memory::intersect(segment.range, updated);
    if (part.size() == 0) continue;
    segments.push_back({.begin = part.begin - updated.begin,
                        .end = part.end - updated.begin,
                        .lr_scale = segment.settings.lr_scale,
                        .weight_decay = options.weight_decay * *segment.settings.decay_scale});
  }
  const optim::AdamwState state{group.masters(), group.exp_avg(), group.exp_avg_sq()};
  const at::Tensor copy = group.dtype() == at::kFloat ? at::Tensor() : group.own_params();
  const optim::AdamwOptions adamw{.lr = options.lr,
                                  .beta1 = options.beta1,
                                  .beta2 = options.beta2,
                                  .epsilon = options.epsilon,
                                  .step = step};
  optim::adamw_step(state, group.reduced_grad().to(at::kFloat), copy, segments, adamw,
                    {.clip_factor = at::full({1}, clip, at::kFloat)});
}

void StepUpdate::start_gathers() {
  gathers_.resize(plans_.size());
  for (size_t index = plans_.size(); index-- > 0;) {  // groups stand last unit first
    const memory::ParamGroup& group = *plans_[index].group;
    if (group.buffer() || !group.options().shard_optimizer || group.layout().padded_elements() == 0) continue;
    gathers_[index] = ranks_.shard->all_gather(group.flat_params(), group.own_params());
  }
}

void StepUpdate::wait_gather(size_t group) {
  if (group >= gathers_.size() || !gathers_[group]) return;
  waited_.wait(*gathers_[group]);
  gathers_[group].reset();
}

void StepUpdate::wait_gathers() {
  for (size_t index = gathers_.size(); index-- > 0;) wait_gather(index);
}

}  // namespace apus::parallel
