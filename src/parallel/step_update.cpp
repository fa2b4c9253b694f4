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
    : ranks_(ranks),
      device_(groups.empty() ? at::Device(at::kCPU) : groups.front()->device()),
      deterministic_(options.deterministic) {
  for (memory::ParamGroup* group : groups) plan_group(*group, options);
  std::stable_sort(sections_.begin(), sections_.end(), [](const Section& a, const Section& b) {
    return std::make_tuple(-a.unit, a.dtype) < std::make_tuple(-b.unit, b.dtype);
  });
  if (!device_.is_cpu()) steps_made_ = at::zeros({1}, at::TensorOptions().dtype(at::kLong).device(device_));
  gathers_.resize(plans_.size());
  if (options.policy.residency.optimizer == memory::Residency::kHost && !plans_.empty()) plan_host(options);
}

void StepUpdate::plan_host(const ShardedModelOptions& options) {
  std::vector<HostGroup> groups;
  for (const GroupPlan& plan : plans_) groups.push_back({plan.group, plan.segments.list(), plan.runs});
  // One rank's gradients arrive in the dtype that they add up in, sums of several in up to four bytes.
  const bool alone = ranks_.dp->size() == 1;
  const auto element = static_cast<int64_t>(c10::elementSize(alone ? options.grad_accum_dtype : at::kFloat));
  host_ = std::make_unique<HostUpdate>(std::move(groups),
                                       HostUpdateOptions{.device = device_,
                                                         .piece_elements = options.host_piece_elements,
                                                         .addend_bytes = element,
                                                         .device_share = options.host_device_share});
  gather_stream_ = std::make_unique<memory::CopyStream>(device_);
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
  const at::Device states = group.masters().device();
  GroupPlan plan{.group = &group,
                 .segments = optim::AdamwSegments(std::move(segments), updated.size(), states),
                 .runs = std::move(runs),
                 .runs_on_device = {},
                 .first_sum = sums_};
  if (!device_.is_cpu()) plan.runs_on_device = cuda::upload_runs(plan.runs, device_);
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

bool StepUpdate::measures_on_host() const {
  return device_.is_cpu() || plans_.front().group->options().residency.gradients == memory::Residency::kHost;
}

std::vector<double> StepUpdate::owned_block_sums(const GroupPlan& plan) {
  if (plan.group->options().residency.gradients == memory::Residency::kHost && host_)
    return host_->block_sums(static_cast<size_t>(&plan - plans_.data()));
  return block_sums_of_squares(plan.group->owned_grad(), plan.runs);
}

/// Numbers that lie on the host, summed wherever the ranks talk.
void StepUpdate::sum_over(comm::Communicator& ranks, const at::Tensor& numbers) {
  const at::Tensor near = numbers.to(device_);
  waited_.wait(*ranks.all_reduce(near));
  if (!near.is_same(numbers)) numbers.copy_(near);
}

/// The same for a gather.
at::Tensor StepUpdate::gathered_sums(const at::Tensor& own) {
  const at::Tensor near = own.to(device_);
  const at::Tensor all = at::empty({ranks_.shard->size() * sums_}, near.options());
  waited_.wait(*ranks_.shard->all_gather(all, near));
  return all.to(at::kCPU);
}

double StepUpdate::sum_over_ranks() {
  double sum = 0.0;
  for (const GroupPlan& plan : plans_) {
    const std::vector<double> sums = owned_block_sums(plan);
    sum = std::accumulate(sums.begin(), sums.end(), sum);
  }
  const at::Tensor total = at::full({1}, sum, at::kDouble);
  sum_over(*ranks_.shard, total);
  return *total.const_data_ptr<double>();
}

double StepUpdate::sum_in_order() {
  const at::Tensor own = at::empty({sums_}, at::kDouble);
  double* next = own.mutable_data_ptr<double>();
  for (const GroupPlan& plan : plans_) {
    const std::vector<double> sums = owned_block_sums(plan);
    next = std::copy(sums.begin(), sums.end(), next);
  }
  const at::Tensor all = gathered_sums(own);
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
  const at::Tensor flag = found_inf.reshape({1}).to(at::kCPU, at::kDouble, /*non_blocking=*/false,
                                                    /*copy=*/true);
  sum_over(*ranks_.dp, flag);
  return *flag.const_data_ptr<double>() != 0.0;  // a NaN counts
}

StepScalars StepUpdate::measure_on_host(const UpdateOptions& options) {
  const double norm = std::sqrt(deterministic_ ? sum_in_order() : sum_over_ranks()) / options.loss_scale;
  const bool skipped = is_skipped_by(options.found_inf) || !std::isfinite(norm);
  const bool clips = options.max_grad_norm > 0 && norm + 1e-6 > options.max_grad_norm;
  const double clip = clips ? options.max_grad_norm / (norm + 1e-6) : 1.0;
  return {.norm = at::full({1}, norm, at::kDouble).to(device_),
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
  if (measures_on_host()) return measure_on_host(options);
  StepScalars scalars = measure_on_device(options);
  if (!host_) return scalars;
  scalars.clip_factor = scalars.clip_factor.cpu();
  scalars.found_inf = scalars.found_inf.cpu();
  scalars.step.reset();
  return scalars;
}

int64_t StepUpdate::updates_on_device() const {
  return steps_made_.item<int64_t>();
}

void StepUpdate::set_updates_on_device(int64_t updates) {
  steps_made_.fill_(updates);
}

void StepUpdate::apply(const UpdateOptions& options, const StepScalars& scalars, int64_t step) {
  const optim::AdamwOptions adamw{.lr = options.lr,
                                  .beta1 = options.beta1,
                                  .beta2 = options.beta2,
                                  .epsilon = options.epsilon,
                                  .decay = options.weight_decay,
                                  .step = step};
  const optim::GradScaling scaling{
      .clip_factor = scalars.clip_factor, .found_inf = scalars.found_inf, .step = scalars.step};
  if (host_) {
    host_->start(adamw, scaling);
    next_finish_ = plans_.size();
    return;
  }
  for (const GroupPlan& plan : plans_) update_group(plan, adamw, scaling);
}

void StepUpdate::update_group(const GroupPlan& plan, const optim::AdamwOptions& options,
                              const optim::GradScaling& scaling) {
  memory::ParamGroup& group = *plan.group;
  const optim::AdamwState state{group.masters(), group.exp_avg(), group.exp_avg_sq()};
  // Parameters on the host are rounded behind the update, and not by it.
  const bool near = group.parameter_residency() == memory::Residency::kDevice;
  const at::Tensor copy = group.has_masters() && near ? group.own_params() : at::Tensor();
  optim::adamw_step(state, group.reduced_grad(), copy, plan.segments, options, scaling);
  if (!near) group.publish_masters();
}

void StepUpdate::step_reduced(const memory::ParamGroup& group) {
  if (!host_) return;
  const auto found = std::ranges::find(plans_, &group, &GroupPlan::group);
  const auto index = static_cast<size_t>(found - plans_.begin());
  if (group.options().residency.gradients == memory::Residency::kHost) {
    host_->measure(index);
  } else {
    host_->fetch(index);
  }
}

void StepUpdate::end_step() {
  if (host_) host_->end_step();
}

void StepUpdate::start_gathers() {
  if (next_finish_ > 0) return gather_stream_->follow_current();  // each starts when its group is updated
  for (size_t index = plans_.size(); index-- > 0;) start_gather(index);  // groups stand last unit first
}

void StepUpdate::start_gather(size_t index) {
  const memory::ParamGroup& group = *plans_[index].group;
  if (group.buffer() || !group.options().shard_optimizer || group.layout().padded_elements() == 0) return;
  gathers_[index] = ranks_.shard->all_gather(group.flat_params(), group.own_params());
}

/// Waits for the updates on the host in their order up to this group's, and starts the gathers behind them.
void StepUpdate::finish_to(size_t group) {
  host_->check();
  while (next_finish_ > group) {
    host_->finish(next_finish_ - 1, *gather_stream_);
    --next_finish_;
    gather_stream_->run([this] { start_gather(next_finish_); });
    gather_stream_->mark().wait_on_current();
  }
}

void StepUpdate::wait_gather(size_t group) {
  if (host_) finish_to(group);
  if (group >= gathers_.size() || !gathers_[group]) return;
  waited_.wait(*gathers_[group]);
  gathers_[group].reset();
}

void StepUpdate::wait_gathers() {
  for (size_t index = plans_.size(); index-- > 0;) wait_gather(index);
  if (host_) host_->settle();
}

}  // namespace apus::parallel
