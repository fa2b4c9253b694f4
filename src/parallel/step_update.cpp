#include "apus/parallel/step_update.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "apus/base/philox.h"
#include "apus/optim/decay_rule.h"
#include "parallel/grad_norm_cuda.h"

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
  const at::Device device = groups.empty() ? at::Device(at::kCPU) : groups.front()->own_params().device();
  if (!device.is_cpu()) steps_made_ = at::zeros({1}, at::TensorOptions().dtype(at::kLong).device(device));
}

void StepUpdate::plan_group(memory::ParamGroup& group, const ShardedModelOptions& options) {
  plan_sections(group);
  const memory::ElementRange updated = group.update_range(), owned = group.owned_range();
  const auto& parameters = group.parameters();
  std::vector<optim::Segment> segments;
  std::vector<WeightedRun> runs;
  for (size_t index = 0; index < parameters.size(); ++index) {
    const ParameterSettings settings = settings_of(parameters[index], options);
    const memory::ElementRange range = group.layout().range_of(static_cast<int64_t>(index));
    const memory::ElementRange part = memory::intersect(range, updated);
    if (part.size() > 0) {
      segments.push_back({.begin = part.begin - updated.begin,
                          .end = part.end - updated.begin,
                          .lr_scale = settings.lr_scale,
                          .weight_decay = *settings.decay_scale,
                          .rounding_key = philox_key(options.rounding_seed, parameters[index].name),
                          .first_element = part.begin - range.begin});
    }
    const memory::ElementRange counted = memory::intersect(range, owned);
    if (settings.norm_weight == 1.0 || counted.size() == 0) continue;
    runs.push_back({counted.begin - owned.begin, counted.end - owned.begin, settings.norm_weight});
  }
  const at::Device device = group.own_params().device();
  GroupPlan plan{.group = &group,
                 .segments = optim::AdamwSegments(std::move(segments), updated.size(), device),
                 .runs = std::move(runs),
                 .runs_on_device = {},
                 .first_sum = sums_};
  if (!device.is_cpu()) plan.runs_on_device = cuda::upload_runs(plan.runs, device);
  sums_ += group.layout().shard_elements() / kBlock;
  plans_.push_back(std::move(plan));
}

/// The norm blocks of each unit in a group, without those behind its last parameter: how many these are
/// depends on the world.
void StepUpdate::plan_sections(memory::ParamGroup& group) {
  const auto& parameters = group.parameters();
  for (size_t index = 0; index < parameters.size(); ++index) {
    const memory::ElementRange range = group.layout().range_of(static_cast<int64_t>(index));
    if (index == 0 || parameters[index - 1].unit != parameters[index].unit) {
      const int64_t block = range.begin / kBlock;
      sections_.push_back({parameters[index].unit, group.source_dtype(), plans_.size(), block, block});
    }
    sections_.back().last_block = (range.end + kBlock - 1) / kBlock;
  }
}

std::vector<double> StepUpdate::owned_block_sums(const GroupPlan& plan) const {
  return block_sums_of_squares(plan.group->owned_grad(), plan.runs);
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

/// Whether any rank was told to skip the step.
bool StepUpdate::is_skipped_by(const at::Tensor& found_inf) {
  if (!found_inf.defined()) return false;
  const at::Tensor flag = found_inf.reshape({1}).to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  waited_.wait(*ranks_.dp->all_reduce(flag));
  return *flag.const_data_ptr<double>() != 0.0;  // a NaN counts
}

StepScalars StepUpdate::measure_on_host(const UpdateOptions& options) {
  const double norm = std::sqrt(deterministic_ ? sum_in_order() : sum_over_ranks()) / options.loss_scale;
  const bool skipped = is_skipped_by(options.found_inf) || !std::isfinite(norm);
  const bool clips = options.max_grad_norm > 0 && norm + 1e-6 > options.max_grad_norm;
  const double clip = clips ? options.max_grad_norm / (norm + 1e-6) : 1.0;
  return {.norm = at::full({1}, norm, at::kDouble),
          .clip_factor = at::full({1}, clip / options.loss_scale, at::kFloat),
          .found_inf = at::full({1}, skipped ? 1.0 : 0.0, at::kFloat),
          .step = {}};
}

/// Where the gathered block sums of all ranks lie, section by section: the same order under every policy.
const at::Tensor& StepUpdate::block_order() {
  if (block_order_.defined()) return block_order_;
  std::vector<int64_t> places;
  for (const Section& section : sections_) {
    const GroupPlan& plan = plans_[section.plan];
    const int64_t blocks = plan.group->layout().shard_elements() / kBlock;
    for (int64_t block = section.first_block; block < section.last_block; ++block) {
      places.push_back(block / blocks * sums_ + plan.first_sum + block % blocks);
    }
  }
  const at::Tensor order = at::empty({static_cast<int64_t>(places.size())}, at::kLong);
  std::copy(places.begin(), places.end(), order.mutable_data_ptr<int64_t>());
  block_order_ = order.to(steps_made_.device());
  return block_order_;
}

at::Tensor StepUpdate::block_sums_on_device() const {
  const at::Tensor sums = at::empty({sums_}, steps_made_.options().dtype(at::kDouble));
  for (const GroupPlan& plan : plans_) {
    const int64_t blocks = plan.group->layout().shard_elements() / kBlock;
    cuda::block_sums_of_squares(plan.group->owned_grad(), plan.runs_on_device,
                                sums.slice(0, plan.first_sum, plan.first_sum + blocks));
  }
  return sums;
}

StepScalars StepUpdate::measure_on_device(const UpdateOptions& options) {
  const bool has_flag = options.found_inf.defined();
  at::Tensor sums = block_sums_on_device();
  if (deterministic_ && ranks_.shard->size() > 1) {
    const at::Tensor all = at::empty({ranks_.shard->size() * sums_}, sums.options());
    waited_.wait(*ranks_.shard->all_gather(all, sums));
    sums = all;
  }
  if (deterministic_) sums = sums.index_select(0, block_order());
  const at::Tensor total = at::empty({has_flag ? 2 : 1}, sums.options());
  total.select(0, 0).copy_(sums.sum());
  if (has_flag) total.select(0, 1).copy_(options.found_inf.reshape({}));
  if (!deterministic_ && ranks_.shard->size() > 1) waited_.wait(*ranks_.shard->all_reduce(total));
  if (has_flag && deterministic_ && ranks_.dp->size() > 1) {
    waited_.wait(*ranks_.dp->all_reduce(total.slice(0, 1)));
  } else if (has_flag && ranks_.replicate && ranks_.replicate->size() > 1) {
    waited_.wait(*ranks_.replicate->all_reduce(total.slice(0, 1)));
  }
  return cuda::step_scalars(total, {options.max_grad_norm, options.loss_scale}, steps_made_);
}

StepScalars StepUpdate::measure(const UpdateOptions& options) {
  return on_gpu() ? measure_on_device(options) : measure_on_host(options);
}

int64_t StepUpdate::updates_on_device() const {
  return steps_made_.item<int64_t>();
}

void StepUpdate::set_updates_on_device(int64_t updates) {
  steps_made_.fill_(updates);
}

void StepUpdate::apply(const UpdateOptions& options, const StepScalars& scalars, int64_t step) {
  for (const GroupPlan& plan : plans_) update_group(plan, options, scalars, step);
}

void StepUpdate::update_group(const GroupPlan& plan, const UpdateOptions& options, const StepScalars& scalars,
                              int64_t step) {
  memory::ParamGroup& group = *plan.group;
  const optim::AdamwState state{group.masters(), group.exp_avg(), group.exp_avg_sq()};
  const at::Tensor copy = group.has_masters() ? group.own_params() : at::Tensor();
  const optim::AdamwOptions adamw{.lr = options.lr,
                                  .beta1 = options.beta1,
                                  .beta2 = options.beta2,
                                  .epsilon = options.epsilon,
                                  .decay = options.weight_decay,
                                  .step = step};
  optim::adamw_step(
      state, group.reduced_grad(), copy, plan.segments, adamw,
      {.clip_factor = scalars.clip_factor, .found_inf = scalars.found_inf, .step = scalars.step});
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
