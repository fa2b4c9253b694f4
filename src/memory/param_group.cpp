#include "apus/memory/param_group.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "apus/base/error.h"

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
      source_dtype_(parameters_.front().tensor.scalar_type()) {
  APUS_CHECK(!options_.shard_parameters || (options_.shard_optimizer && options_.shard_gradients),
             ConfigError, "group '", options_.name,
             "': sharded parameters need a sharded optimizer and sharded gradients");
  APUS_CHECK(options_.grad_dtype == at::kFloat || options_.grad_dtype == at::kBFloat16, ConfigError,
             "gradients accumulate in fp32 or bf16, not in ", c10::toString(options_.grad_dtype));
  at::NoGradGuard no_grad;
  allocate(parameters_.front().tensor.device());
  take_values();
  install_leaves();
}

void ParamGroup::allocate(at::Device device) {
  const at::ScalarType dtype = options_.compute_dtype.value_or(source_dtype_);
  const auto plain = at::TensorOptions().dtype(dtype).device(device);
  const ElementRange range = update_range();
  if (options_.shard_parameters) {
    const int64_t bytes = layout_.padded_elements() * static_cast<int64_t>(c10::elementSize(dtype));
    buffer_ = std::make_unique<ShardedBuffer>(options_.name, bytes, ShardPlace{options_.rank, options_.world},
                                              device);
    own_params_U_ = buffer_->shard().view(dtype);
  } else {
    flat_params_G_ = at::zeros({layout_.padded_elements()}, plain);
    own_params_U_ = flat_params_G_.slice(0, range.begin, range.end);
  }
  const auto fp32 = plain.dtype(at::kFloat);
  masters_U_ = dtype == at::kFloat ? own_params_U_ : at::zeros({range.size()}, fp32);
  exp_avg_U_ = at::zeros({range.size()}, fp32);
  exp_avg_sq_U_ = at::zeros({range.size()}, fp32);
}

/// The leaves' values that lie in a piece of the flat layout, in their own dtype; zeros between them.
at::Tensor ParamGroup::piece_of_leaves(const ElementRange& piece) const {
  at::Tensor values = at::zeros({piece.size()}, parameters_.front().tensor.options().requires_grad(false));
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
  for (int64_t begin = 0; begin < layout_.padded_elements(); begin += kPieceElements) {
    const ElementRange all{begin, std::min(begin + kPieceElements, layout_.padded_elements())};
    const ElementRange piece = agrees ? all : intersect(all, kept);
    if (piece.size() == 0) continue;
    const at::Tensor values = piece_of_leaves(piece);
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
  if (dtype() != at::kFloat) put(masters_U_, update_range());
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
  if (dtype() != at::kFloat) own_params_U_.copy_(masters_U_);
}

at::Tensor ParamGroup::zero_grads(int64_t elements) const {
  return at::zeros({elements}, own_params_U_.options().dtype(options_.grad_dtype));
}

void ParamGroup::add_grad(int64_t index, const at::Tensor& grad) {
  APUS_ASSERT(grad_state_ != GradState::kReducing, "a gradient of '", parameters_.at(index).name,
              "' arrived while its group is being reduced");
  if (!full_grad_G_.defined()) full_grad_G_ = zero_grads(layout_.padded_elements());
  grad_state_ = GradState::kPartial;
  if (!grad.defined()) return;
  const FlatEntry& entry = layout_.entries()[static_cast<size_t>(index)];
  APUS_CHECK(grad.sizes() == at::IntArrayRef(entry.sizes), ShapeError, "gradient of '", entry.name, "' has ",
             grad.numel(), " elements in another shape than the parameter's ", entry.numel());
  const ElementRange range = layout_.range_of(index);
  full_grad_G_.slice(0, range.begin, range.end).view(entry.sizes).add_(grad);
}

at::Tensor ParamGroup::begin_reduce() {
  APUS_ASSERT(grad_state_ != GradState::kReducing, "group '", options_.name, "' is being reduced already");
  if (!full_grad_G_.defined()) full_grad_G_ = zero_grads(layout_.padded_elements());
  grad_state_ = GradState::kReducing;
  return full_grad_G_;
}

void ParamGroup::finish_reduce(const at::Tensor& reduced_shard) {
  APUS_ASSERT(grad_state_ == GradState::kReducing, "group '", options_.name, "' has no reduction to finish");
  grad_state_ = GradState::kSharded;
  if (keeps_full_gradient()) return;
  if (shard_grad_S_.defined()) {
    shard_grad_S_.add_(reduced_shard);
  } else {
    shard_grad_S_ = reduced_shard.to(options_.grad_dtype);
  }
  full_grad_G_.reset();
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

void ParamGroup::reset_grads() {
  shard_grad_S_.reset();
  grad_state_ = GradState::kEmpty;
  if (keeps_full_gradient() && full_grad_G_.defined()) {
    full_grad_G_.zero_();
  } else {
    full_grad_G_.reset();
  }
}

}  // namespace apus::memory
