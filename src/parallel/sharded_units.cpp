#include "apus/parallel/sharded_units.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>
#include <utility>

#include "apus/base/error.h"
#include "apus/memory/staged_copy.h"
#include "apus/nn/placement.h"
#include "parallel/plan_hash.h"

namespace apus::parallel {
namespace {

int64_t count_elements(const ModelUnits& model, bool trainable) {
  std::set<const void*> seen;
  int64_t sum = 0;
  for (const ModelUnit& unit : model.units) {
    for (const nn::NamedParameter& parameter : unit.parameters) {
      if (parameter.tensor.requires_grad() != trainable) continue;
      if (seen.insert(parameter.tensor.unsafeGetTensorImpl()).second) sum += parameter.tensor.numel();
    }
  }
  return sum;
}

std::vector<memory::ParamGroup*> pointers(const std::vector<std::unique_ptr<memory::ParamGroup>>& groups) {
  std::vector<memory::ParamGroup*> result;
  for (const auto& group : groups) result.push_back(group.get());
  return result;
}

/// Gives floating leaves another dtype, and all leaves another device; those that have both stay as they are,
/// mapped files among them.
void round_leaves(const std::vector<memory::GroupParameter>& parameters, const ShardedModelOptions& options) {
  at::NoGradGuard no_grad;
  for (const memory::GroupParameter& parameter : parameters) {
    const at::Tensor& leaf = parameter.tensor;
    const bool rounds = options.frozen_dtype && leaf.is_floating_point();
    const at::ScalarType dtype = rounds ? *options.frozen_dtype : leaf.scalar_type();
    const at::Device device = options.device.value_or(leaf.device());
    if (!nn::is_on(leaf, device) || leaf.scalar_type() != dtype)
      leaf.set_data(memory::staged_to(leaf, device, dtype));
  }
}

void check_use(const ModelUnits& model, ModelUse use) {
  const bool trains = count_elements(model, true) > 0;
  APUS_CHECK(trains || use == ModelUse::kReference, ConfigError,
             "the model has no trainable parameter; add an adapter or set requires_grad before sharding");
  APUS_CHECK(!trains || use == ModelUse::kTraining, ConfigError,
             "a reference model must be frozen, but some of its parameters require a gradient");
}

}  // namespace

ShardedUnits::ShardedUnits(ModelUnits model, const DataParallel& ranks, const ShardedModelOptions& options)
    : model_(std::move(model)), ranks_(ranks), options_(options) {
  options_.policy.check(ranks_.shard->size(), ranks_.replicas());
  check_use(model_, options_.use);
  for (size_t index = 0; index < model_.units.size(); ++index) {
    Unit unit{.index = index};
    for (const auto& parameter : model_.units[index].parameters) unit.parameters.push_back(parameter.tensor);
    units_.push_back(std::move(unit));
  }
  const Placement trainable = trainable_placement(), frozen = frozen_placement();
  agree_on_plan(*ranks_.dp, plan_hash(model_, options_));
  build_groups(trainable);
  list_groups();
  build_frozen(frozen);
  if (trainable == Placement::kSharded) part_reductions();
  reducer_ = std::make_unique<GradReducer>(
      pointers(groups_), options_.policy, ranks_,
      GradReducerOptions{.reduce_dtype = options_.reduce_dtype,
                         .overlap = options_.overlap_comm,
                         .deterministic = options_.deterministic,
                         .on_step_reduced = [this](const auto& group) { update_->step_reduced(group); }});
  if (trainable == Placement::kSharded || frozen == Placement::kSharded) build_gatherer();
  // The head's input and that of the unit before it are needed as soon as backward begins.
  const BlockRunnerOptions kept{.activations = options_.activations,
                                .kept_from = units_.size() - std::min<size_t>(units_.size(), 2)};
  runner_ = std::make_unique<BlockRunner>(reducer_->sink(), gatherer_.get(), kept);
  update_ = std::make_unique<StepUpdate>(pointers(groups_), ranks_, options_);
}

ShardedUnits::~ShardedUnits() = default;

Placement ShardedUnits::trainable_placement() const {
  if (options_.trainable != Placement::kByPolicy) {
    APUS_CHECK(options_.trainable == Placement::kReplicated || options_.policy.param_shard, ConfigError,
               "policy ", options_.policy.name,
               " does not shard parameters, so trainable ones cannot be placed sharded; use zero3 or fsdp");
    return options_.trainable;
  }
  // Adapters are small and used by every unit: one group, whole on every rank.
  const bool adapters = count_elements(model_, true) * 4 <= count_elements(model_, false);
  return options_.policy.param_shard && !adapters ? Placement::kSharded : Placement::kReplicated;
}

Placement ShardedUnits::frozen_placement() const {
  if (options_.frozen != Placement::kByPolicy) return options_.frozen;
  return options_.policy.param_shard ? Placement::kSharded : Placement::kReplicated;
}

void ShardedUnits::build_groups(Placement placement) {
  const bool sharded = placement == Placement::kSharded;
  for (auto& parameters : plan_groups(model_, sharded ? 1 : options_.bucket_elements)) {
    memory::ParamGroupOptions group{.name = detail::concat("group", groups_.size()),
                                    .rank = ranks_.shard->rank(),
                                    .world = ranks_.shard->size(),
                                    .shard_parameters = sharded,
                                    .shard_optimizer = options_.policy.opt_shard,
                                    .shard_gradients = options_.policy.grad_shard || options_.deterministic,
                                    .compute_dtype = options_.compute_dtype,
                                    .grad_dtype = options_.grad_accum_dtype,
                                    .states = options_.optimizer_states,
                                    .device = options_.device,
                                    .residency = options_.policy.residency,
                                    .host_adder = host_adder(groups_.size())};
    if (sharded)
      group.name = detail::concat("group", groups_.size(), " (", model_.units[parameters[0].unit].name, ")");
    if (options_.initial_values == InitialValues::kRankZero) {
      group.agree_on_values = [this](const at::Tensor& values) {
        waited_.wait(*ranks_.dp->broadcast(values, 0));
      };
    }
    groups_.push_back(std::make_unique<memory::ParamGroup>(std::move(parameters), group));
  }
}

/// Adds a group's gradients beside this thread where they lie on the host.
memory::HostAdder ShardedUnits::host_adder(size_t group) {
  if (options_.policy.residency.gradients == memory::Residency::kDevice) return {};
  return {.add = [this, group](const at::Tensor&, const at::Tensor& addend,
                               memory::SumStart start) { update_->host()->add(group, addend, start); },
          .wait = [this, group] { update_->host()->wait_added(group); }};
}

void ShardedUnits::build_frozen(Placement placement) {
  auto units = frozen_parameters(model_);
  for (size_t index = 0; index < units.size(); ++index) {
    if (units[index].empty()) continue;
    if (placement == Placement::kReplicated) {
      round_leaves(units[index], options_);
      continue;
    }
    frozen_.push_back(std::make_unique<memory::FrozenGroup>(
        std::move(units[index]),
        memory::FrozenGroupOptions{.name = detail::concat("frozen ", model_.units[index].name),
                                   .place = {ranks_.shard->rank(), ranks_.shard->size()},
                                   .compute_dtype = options_.frozen_dtype,
                                   .device = options_.device,
                                   .residency = options_.policy.residency.parameters}));
    frozen_unit_.push_back(index);
  }
}

/// Gathers run beside backward and reductions beside gathers. One NCCL group would make them take turns.
void ShardedUnits::part_reductions() {
  const bool on_gpu = groups_.front()->parameters().front().tensor.is_cuda();
  if (!on_gpu || !options_.overlap_comm || ranks_.reduce != nullptr || ranks_.shard->size() == 1) return;
  reduce_ranks_ = second_shard_group(ranks_);
  ranks_.reduce = reduce_ranks_.get();
}

void ShardedUnits::build_gatherer() {
  std::vector<GatherUnit> plan(units_.size());
  std::vector<std::vector<size_t>> sharded(units_.size());  // groups whose own ranges a unit's gather reads
  std::unordered_map<const void*, size_t> owner;            // of each sharded parameter
  const auto own = [&](size_t unit, memory::ShardedBuffer* buffer,
                       const std::vector<memory::GroupParameter>& all) {
    plan[unit].buffers.push_back(buffer);
    for (const auto& parameter : all) owner[parameter.tensor.unsafeGetTensorImpl()] = unit;
  };
  for (size_t index = 0; index < groups_.size(); ++index) {
    const auto& group = groups_[index];
    if (!group->buffer()) continue;
    const auto unit = static_cast<size_t>(group->parameters()[0].unit);
    own(unit, group->buffer(), group->parameters());
    sharded[unit].push_back(index);
  }
  for (size_t index = 0; index < frozen_.size(); ++index) {
    own(frozen_unit_[index], &frozen_[index]->buffer(), frozen_[index]->parameters());
  }
  for (size_t index = 0; index < units_.size(); ++index) {
    plan[index].own_slot = plan[index].own_slot || model_.units[index].slot == SlotKind::kOwn;
    std::set<size_t> others;
    for (const at::Tensor& parameter : units_[index].parameters) {
      const auto found = owner.find(parameter.unsafeGetTensorImpl());
      if (found != owner.end() && found->second != index) others.insert(found->second);
    }
    for (const size_t other : others) plan[other].own_slot = true;
    plan[index].also_reads.assign(others.begin(), others.end());
  }
  const int kept_by = options_.policy.backward_ranks(ranks_.shard->size());
  gatherer_ = std::make_unique<Gatherer>(
      std::move(plan), *ranks_.shard,
      GathererOptions{.backward_ranks = kept_by == 1 && !options_.policy.keeps_whole(1) ? 0 : kept_by,
                      .prefetch = options_.overlap_comm,
                      .poison = options_.poison_released,
                      .before_gather = [this, sharded = std::move(sharded)](size_t unit) {
                        for (const size_t group : sharded[unit]) update_->wait_gather(group);
                      }});
}

/// Which groups hold the parameters of each unit.
void ShardedUnits::list_groups() {
  std::unordered_map<const void*, size_t> group_of;
  for (size_t index = 0; index < groups_.size(); ++index) {
    for (const auto& parameter : groups_[index]->parameters()) {
      group_of[parameter.tensor.unsafeGetTensorImpl()] = index;
    }
  }
  for (const Unit& unit : units_) {
    std::set<size_t> groups;
    for (const at::Tensor& parameter : unit.parameters) {
      const auto found = group_of.find(parameter.unsafeGetTensorImpl());
      if (found != group_of.end()) groups.insert(found->second);
    }
    unit_groups_.emplace_back(groups.begin(), groups.end());
  }
}

at::Tensor ShardedUnits::run(size_t unit, const at::Tensor& input, BlockRunner::Function function,
                             Recompute recompute) {
  APUS_CHECK(unit < units_.size(), ConfigError, "unit ", unit, " of ", units_.size(), " does not exist");
  for (const size_t group : unit_groups_[unit]) update_->wait_gather(group);
  return runner_->run(units_[unit], input, recompute, std::move(function));
}

void ShardedUnits::backward(const at::Tensor& loss, MicroBatchPlace place) {
  APUS_CHECK(options_.use == ModelUse::kTraining, ConfigError, "a reference model has no backward");
  reducer_->begin_micro_batch(place);
  if (loss.requires_grad()) loss.backward();
  runner_->finish_backward();
  reducer_->finish_micro_batch();
}

at::Tensor ShardedUnits::update_async(const UpdateOptions& options) {
  APUS_CHECK(options_.use == ModelUse::kTraining, ConfigError, "a reference model has nothing to update");
  at::NoGradGuard no_grad;
  finish_update();
  const StepScalars scalars = update_->measure(options);
  // On a GPU nobody knows yet: what follows is guarded there, and every rank makes the same calls.
  const bool skipped = scalars.found_inf.is_cpu() && scalars.found_inf.item<float>() != 0.0f;
  if (!skipped) {
    ++updates_;
    if (gatherer_) gatherer_->reset();
    update_->apply(options, scalars, updates_);
    update_->start_gathers();
    if (!options_.overlap_comm) finish_update();
  }
  update_->end_step();
  for (const auto& group : groups_) group->reset_grads();
  return scalars.norm;
}

double ShardedUnits::update(const UpdateOptions& options) {
  const at::Tensor norm = update_async(options);
  const double value = norm.item<double>();
  if (!std::isfinite(value) || options.found_inf.defined()) settle_updates();
  return value;
}

int64_t ShardedUnits::settle_updates() {
  if (update_->counts_on_device()) updates_ = update_->updates_on_device();
  return updates_;
}

void ShardedUnits::finish_update() {
  update_->wait_gathers();
}

double ShardedUnits::comm_wait_ms() const {
  const double gathers = gatherer_ ? gatherer_->waited().milliseconds() : 0.0;
  return gathers + reducer_->waited().milliseconds() + update_->waited().milliseconds() +
         waited_.milliseconds();
}

HostUpdateTimes ShardedUnits::host_update_times() const {
  return update_->host() ? update_->host()->times() : HostUpdateTimes{};
}

int64_t ShardedUnits::trainable_elements() const {
  int64_t sum = 0;
  for (const auto& group : groups_) sum += group->layout().used_elements();
  return sum;
}

/// All ranks' ranges, on the engine's device wherever the own one lies.
at::Tensor ShardedUnits::gathered(int64_t elements, const at::Tensor& own) {
  const at::Device device = groups_.empty() ? options_.device.value_or(own.device()) : groups_[0]->device();
  const at::Tensor near = own.to(device);
  const at::Tensor full = at::empty({elements}, near.options());
  if (elements > 0) waited_.wait(*ranks_.shard->all_gather(full, near));
  return full;
}

std::vector<nn::NamedParameter> ShardedUnits::gather_masters() {
  at::NoGradGuard no_grad;
  finish_update();
  std::vector<nn::NamedParameter> result;
  for (const auto& group : groups_) {
    at::Tensor full;
    if (!group->buffer() && !group->has_masters()) {
      full = group->flat_params();
    } else if (group->options().shard_optimizer) {
      full = gathered(group->layout().padded_elements(), group->masters());
    } else {
      full = group->masters().to(group->device());
    }
    for (size_t index = 0; index < group->parameters().size(); ++index) {
      const memory::GroupParameter& parameter = group->parameters()[index];
      const auto range = group->layout().range_of(static_cast<int64_t>(index));
      result.push_back(
          {parameter.name, full.slice(0, range.begin, range.end).view(parameter.tensor.sizes())});
    }
  }
  return result;
}

std::vector<nn::NamedParameter> ShardedUnits::gather_all() {
  std::vector<nn::NamedParameter> result = gather_masters();
  at::NoGradGuard no_grad;
  std::set<const void*> done;
  for (const auto& group : frozen_) {
    memory::ShardedBuffer& buffer = group->buffer();
    const at::Tensor bytes = gathered(buffer.bytes(), buffer.shard());
    for (size_t index = 0; index < group->parameters().size(); ++index) {
      const memory::GroupParameter& parameter = group->parameters()[index];
      done.insert(parameter.tensor.unsafeGetTensorImpl());
      const int64_t begin = group->layout().range_of(static_cast<int64_t>(index)).begin;
      const at::Tensor values =
          bytes.slice(0, begin, begin + static_cast<int64_t>(parameter.tensor.nbytes()));
      result.push_back(
          {parameter.name, values.view(parameter.tensor.scalar_type()).view(parameter.tensor.sizes())});
    }
  }
  for (const ModelUnit& unit : model_.units) {
    for (const nn::NamedParameter& parameter : unit.parameters) {
      if (parameter.tensor.requires_grad() || !done.insert(parameter.tensor.unsafeGetTensorImpl()).second)
        continue;
      result.push_back(parameter);
    }
  }
  return result;
}

std::vector<GroupState> ShardedUnits::optimizer_states() {
  finish_update();
  std::vector<GroupState> result;
  for (const auto& group : groups_) {
    const memory::ElementRange owned = group->owned_range();
    const int64_t shift = group->update_range().begin;
    const auto own = [&](const at::Tensor& states) {
      return states.slice(0, owned.begin - shift, owned.end - shift);
    };
    result.push_back({.group = detail::concat("group", result.size()),
                      .layout_fingerprint = group->layout().fingerprint(),
                      .padded_elements = group->layout().padded_elements(),
                      .owned = owned,
                      .master = own(group->masters()),
                      .exp_avg = own(group->exp_avg()),
                      .exp_avg_sq = own(group->exp_avg_sq())});
  }
  return result;
}

void ShardedUnits::load_finished(int64_t updates) {
  at::NoGradGuard no_grad;
  updates_ = updates;
  if (update_->counts_on_device()) update_->set_updates_on_device(updates);
  finish_update();
  if (gatherer_) gatherer_->reset();
  for (const auto& group : groups_) {
    const memory::ElementRange owned = group->owned_range();
    if (!group->options().shard_optimizer && group->layout().padded_elements() > 0) {
      for (const at::Tensor& states : {group->masters(), group->exp_avg(), group->exp_avg_sq()}) {
        const at::Tensor all = states.to(group->device());
        waited_.wait(*ranks_.shard->all_gather(all, all.slice(0, owned.begin, owned.end)));
        if (!all.is_same(states)) states.copy_(all);
      }
    }
    group->publish_masters();
  }
  update_->start_gathers();
  finish_update();
}

}  // namespace apus::parallel
