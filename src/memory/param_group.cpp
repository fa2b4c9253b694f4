#include "apus/memory/param_group.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "apus/base/error.h"
#include "apus/memory/host_buffer.h"
#include "apus/memory/staged_copy.h"

namespace apus::memory {
namespace {

std::vector<FlatEntry> entries_of(const std::vector<GroupParameter>& parameters) {
  std::vector<FlatEntry> entries;
  entries.reserve(parameters.size());
  for (size_t index = 0; index < parameters.size(); ++index) {
    const GroupParameter& parameter = parameters[index];
    const bool new_unit = index == 0 || parameters[index - 1].unit != parameter.unit;
    entries.push_back({parameter.name, parameter.tensor.sizes().vec(), new_unit});
  }
  return entries;
}

void check_parameters(const std::vector<GroupParameter>& parameters, const std::string& group) {
  APUS_CHECK(!parameters.empty(), ShapeError, "parameter group '", group, "' is empty");
  const at::Tensor& first = parameters.front().tensor;
  for (const GroupParameter& parameter : parameters) {
    const at::Tensor& tensor = parameter.tensor;
    APUS_CHECK(tensor.defined() && tensor.is_leaf() && tensor.requires_grad(), ShapeError, "parameter '",
               parameter.name, "' of group '", group, "' must be a leaf that requires a gradient");
    APUS_CHECK(tensor.scalar_type() == first.scalar_type() && tensor.device() == first.device(), ShapeError,
               "parameter '", parameter.name, "' is ", tensor.toString(), " on ", tensor.device().str(),
               ", but group '", group, "' holds ", first.toString(), " on ", first.device().str(),
               "; give each dtype and device a group of its own");
  }
}

}  // namespace

ParamGroup::ParamGroup(std::vector<GroupParameter> parameters, const ParamGroupOptions& options)
    : parameters_((check_parameters(parameters, options.name), std::move(parameters))),
      options_(options),
      layout_(entries_of(parameters_), options.world),
      source_dtype_(parameters_.front().tensor.scalar_type()),
      device_(options.device.value_or(parameters_.front().tensor.device())) {
  APUS_CHECK(!options_.shard_parameters || (options_.shard_optimizer && options_.shard_gradients),
             ConfigError, "group '", options_.name,
             "': sharded parameters need a sharded optimizer and sharded gradients");
  APUS_CHECK(options_.grad_dtype == at::kFloat || options_.grad_dtype == at::kBFloat16, ConfigError,
             "gradients accumulate in fp32 or bf16, not in ", c10::toString(options_.grad_dtype));
  const at::ScalarType compute = options_.compute_dtype.value_or(source_dtype_);
  APUS_CHECK(options_.states == OptimizerStates::kFp32 || compute == at::kBFloat16, ConfigError, "group '",
             options_.name, "' holds ", c10::toString(compute),
             " parameters; bf16 optimizer states take the place of masters, so they need bf16 parameters");
  APUS_CHECK(options_.residency.gradients == Residency::kDevice || options_.shard_gradients, ConfigError,
             "group '", options_.name, "': gradients on the host must be sharded");
  at::NoGradGuard no_grad;
  allocate();
  take_values();
  install_leaves();
}

void ParamGroup::allocate() {
  const at::ScalarType dtype = options_.compute_dtype.value_or(source_dtype_);
  const auto plain = at::TensorOptions().dtype(dtype).device(device_);
  const ElementRange range = update_range();
  if (options_.shard_parameters) {
    const int64_t bytes = layout_.padded_elements() * static_cast<int64_t>(c10::elementSize(dtype));
    buffer_ = std::make_unique<ShardedBuffer>(options_.name, bytes, ShardPlace{options_.rank, options_.world},
                                              device_, parameter_residency());
    own_params_U_ = buffer_->shard().view(dtype);
  } else {
    flat_params_G_ = at::zeros({layout_.padded_elements()}, plain);
    own_params_U_ = flat_params_G_.slice(0, range.begin, range.end);
  }
  const at::ScalarType states = options_.states == OptimizerStates::kFp32 ? at::kFloat : at::kBFloat16;
  const auto zeros = [&] {
    return options_.residency.optimizer == Residency::kHost ? host_zeros(range.size(), states, device_)
                                                            : at::zeros({range.size()}, plain.dtype(states));
  };
  masters_U_ = has_masters() ? zeros() : own_params_U_;
  exp_avg_U_ = zeros();
  exp_avg_sq_U_ = zeros();
  if (options_.residency.gradients == Residency::kHost)
    shard_grad_S_ = host_zeros(layout_.shard_elements(), options_.grad_dtype, device_);
}

bool ParamGroup::has_masters() const {
  const bool rounds = dtype() != at::kFloat && options_.states == OptimizerStates::kFp32;
  return rounds || options_.residency.optimizer != parameter_residency();
}

/// The leaves' values that lie in a piece of the flat layout, in their own dtype; zeros between them.
at::Tensor ParamGroup::piece_of_leaves(const ElementRange& piece) const {
  const at::Tensor& first = parameters_.front().tensor;
  // From the host to a GPU: pinned, so that the next piece is read while this one travels.
  const bool travels = first.device().is_cpu() && !device_.is_cpu();
  at::Tensor values = at::zeros({piece.size()}, first.options().requires_grad(false).pinned_memory(travels));
  for (size_t index = 0; index < parameters_.size(); ++index) {
    const ElementRange range = layout_.range_of(static_cast<int64_t>(index));
    const ElementRange part = intersect(range, piece);
    if (part.size() == 0) continue;
    const at::Tensor source = parameters_[index].tensor.detach().reshape({-1});
    values.slice(0, part.begin - piece.begin, part.end - piece.begin)
        .copy_(source.slice(0, part.begin - range.begin, part.end - range.begin));
  }
  return values;
}

void ParamGroup::take_values() {
  const ElementRange kept =
      flat_params_G_.defined() ? ElementRange{0, layout_.padded_elements()} : owned_range();
  const bool agrees = static_cast<bool>(options_.agree_on_values);
  // What all stays on the host need not pass through the device.
  const bool stays = !agrees && own_params_U_.is_cpu() && masters_U_.is_cpu();
  const at::Device by = stays ? at::Device(at::kCPU) : device_;
  for (int64_t begin = 0; begin < layout_.padded_elements(); begin += kPieceElements) {
    const ElementRange all{begin, std::min(begin + kPieceElements, layout_.padded_elements())};
    const ElementRange piece = agrees ? all : intersect(all, kept);
    if (piece.size() == 0) continue;
    // Towards the host it must have arrived before the host reads it.
    const at::Tensor values = piece_of_leaves(piece).to(by, /*non_blocking=*/!by.is_cpu());
    if (agrees) options_.agree_on_values(values);
    take_piece(piece, values);
  }
}

/// Puts a piece of the initial values wherever this rank keeps it.
void ParamGroup::take_piece(const ElementRange& piece, const at::Tensor& values) {
  const auto put = [&](const at::Tensor& target, const ElementRange& range) {
    const ElementRange part = intersect(range, piece);
    if (part.size() == 0) return;
    target.slice(0, part.begin - range.begin, part.end - range.begin)
        .copy_(values.slice(0, part.begin - piece.begin, part.end - piece.begin));
  };
  if (flat_params_G_.defined()) {
    put(flat_params_G_, {0, layout_.padded_elements()});
  } else {
    put(own_params_U_, owned_range());
  }
  if (has_masters()) put(masters_U_, update_range());
}

void ParamGroup::install_leaves() {
  const auto element = static_cast<int64_t>(c10::elementSize(dtype()));
  for (size_t index = 0; index < parameters_.size(); ++index) {
    at::Tensor& leaf = parameters_[index].tensor;
    const ElementRange range = layout_.range_of(static_cast<int64_t>(index));
    leaf.set_data(buffer_ ? buffer_->view(range.begin * element, leaf.sizes(), dtype())
                          : flat_params_G_.slice(0, range.begin, range.end).view(leaf.sizes()));
  }
}

ElementRange ParamGroup::update_range() const {
  if (options_.shard_optimizer) return owned_range();
  return {0, layout_.padded_elements()};
}

const at::Tensor& ParamGroup::flat_params() const {
  APUS_ASSERT(flat_params_G_.defined(), "the parameters of group '", options_.name, "' are sharded");
  return flat_params_G_;
}

void ParamGroup::publish_masters() {
  if (has_masters()) staged_copy(own_params_U_, masters_U_);
}

/// Parameter `index` in the full gradient, which exists from then on.
at::Tensor ParamGroup::full_grad_of(int64_t index) {
  const auto place = static_cast<size_t>(index);
  APUS_ASSERT(grad_state_ != GradState::kReducing, "a gradient of '", parameters_.at(place).name,
              "' arrived while its group is being reduced");
  grad_state_ = GradState::kPartial;
  if (!full_grad_G_.defined()) {
    full_grad_G_ = at::empty({layout_.padded_elements()},
                             at::TensorOptions().dtype(options_.grad_dtype).device(device_));
    gaps_are_zero_ = false;
  }
  filled_.resize(parameters_.size(), 0);
  const ElementRange range = layout_.range_of(index);
  return full_grad_G_.slice(0, range.begin, range.end).view(layout_.entries()[place].sizes);
}

GradTarget ParamGroup::grad_target(int64_t index) {
  at::NoGradGuard no_grad;
  GradTarget target{.grad = full_grad_of(index)};
  target.is_fresh = !std::exchange(filled_[static_cast<size_t>(index)], 1);
  return target;
}

void ParamGroup::add_grad(int64_t index, const at::Tensor& grad) {
  const at::Tensor place = full_grad_of(index);
  if (!grad.defined()) return;
  APUS_CHECK(grad.sizes() == place.sizes(), ShapeError, "gradient of '",
             layout_.entries()[static_cast<size_t>(index)].name, "' has ", grad.numel(),
             " elements in another shape than the parameter's ", place.numel());
  const bool is_fresh = !std::exchange(filled_[static_cast<size_t>(index)], 1);
  if (is_fresh) {
    place.copy_(grad);
  } else {
    place.add_(grad);
  }
}

/// Zeros what nobody wrote, neighbours in one call.
void ParamGroup::zero_unfilled() {
  const auto zero = [this](int64_t begin, int64_t end) {
    if (begin < end) full_grad_G_.slice(0, begin, end).zero_();
  };
  int64_t begin = 0;  // of what is not written, as far as is known
  for (size_t index = 0; index < parameters_.size(); ++index) {
    const ElementRange range = layout_.range_of(static_cast<int64_t>(index));
    if (!filled_[index]) continue;
    zero(begin, range.begin);
    begin = range.end;
  }
  zero(begin, layout_.padded_elements());
}

at::Tensor ParamGroup::begin_reduce() {
  APUS_ASSERT(grad_state_ != GradState::kReducing, "group '", options_.name, "' is being reduced already");
  full_grad_of(0);
  const bool all_filled = std::find(filled_.begin(), filled_.end(), 0) == filled_.end();
  if (!all_filled || !gaps_are_zero_) zero_unfilled();
  gaps_are_zero_ = true;
  filled_.assign(parameters_.size(), 1);
  grad_state_ = GradState::kReducing;
  return full_grad_G_;
}

void ParamGroup::finish_reduce(const at::Tensor& reduced_shard) {
  APUS_ASSERT(grad_state_ == GradState::kReducing, "group '", options_.name, "' has no reduction to finish");
  grad_state_ = GradState::kSharded;
  if (keeps_full_gradient()) return;
  add_to_shard(reduced_shard);
  full_grad_G_.reset();
  filled_.clear();
}

void ParamGroup::add_to_shard(const at::Tensor& reduced_shard) {
  const SumStart start = std::exchange(shard_holds_sum_, true) ? SumStart::kAdd : SumStart::kOverwrite;
  if (options_.residency.gradients == Residency::kHost && options_.host_adder.add) {
    options_.host_adder.add(shard_grad_S_, reduced_shard, start);
  } else if (options_.residency.gradients == Residency::kHost) {
    const at::Tensor addend = reduced_shard.to(at::kCPU);
    start == SumStart::kAdd ? shard_grad_S_.add_(addend) : shard_grad_S_.copy_(addend);
  } else if (start == SumStart::kAdd) {
    shard_grad_S_.add_(reduced_shard);
  } else {
    shard_grad_S_ = reduced_shard.to(options_.grad_dtype);
  }
}

void ParamGroup::spread_grad(
    const std::function<void(const at::Tensor& full, const at::Tensor& shard)>& all_gather) {
  APUS_ASSERT(grad_state_ == GradState::kSharded && shard_grad_S_.defined(), "group '", options_.name,
              "' has no sharded gradient to spread");
  full_grad_G_ = at::empty({layout_.padded_elements()}, shard_grad_S_.options());
  all_gather(full_grad_G_, shard_grad_S_);
}

at::Tensor ParamGroup::accumulated() const {
  APUS_ASSERT(grad_state_ == GradState::kSharded, "the gradients of group '", options_.name,
              "' are read before they are reduced");
  if (options_.host_adder.wait) options_.host_adder.wait();
  if (!keeps_full_gradient()) return shard_grad_S_;
  const ElementRange range = update_range();
  return full_grad_G_.slice(0, range.begin, range.end);
}

at::Tensor ParamGroup::reduced_grad() const {
  if (!keeps_full_gradient() && !options_.shard_optimizer) {
    APUS_ASSERT(full_grad_G_.defined(), "the gradient of group '", options_.name, "' was not spread");
    return full_grad_G_;
  }
  return accumulated();
}

at::Tensor ParamGroup::owned_grad() const {
  const at::Tensor grads = accumulated();
  if (!keeps_full_gradient()) return grads;
  const ElementRange owned = owned_range();
  const int64_t shift = update_range().begin;
  return grads.slice(0, owned.begin - shift, owned.end - shift);
}

at::Tensor ParamGroup::host_accumulator() const {
  return options_.residency.gradients == Residency::kHost ? shard_grad_S_ : at::Tensor();
}

void ParamGroup::reset_grads() {
  if (options_.residency.gradients == Residency::kDevice) shard_grad_S_.reset();
  shard_holds_sum_ = false;
  grad_state_ = GradState::kEmpty;
  filled_.clear();  // what a kept buffer holds is garbage from here on, but for its gaps
  if (!keeps_full_gradient()) full_grad_G_.reset();
}

}  // namespace apus::memory
