#include "apus/memory/param_group.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "apus/base/error.h"

namespace apus::memory {
namespace {

std::vector<FlatEntry> entries_of(const std::vector<GroupParameter>& parameters) {
  std::vector<FlatEntry> entries;
  entries.reserve(parameters.size());
  for (const GroupParameter& parameter : parameters) {
    entries.push_back({parameter.name, parameter.tensor.sizes().vec()});
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

at::Tensor zeros_fp32(int64_t elements, const at::Tensor& like) {
  return at::zeros({elements}, like.options().dtype(at::kFloat).requires_grad(false));
}

}  // namespace

ParamGroup::ParamGroup(std::vector<GroupParameter> parameters, const ParamGroupOptions& options)
    : parameters_((check_parameters(parameters, options.name), std::move(parameters))),
      options_(options),
      layout_(entries_of(parameters_), options.world) {
  at::NoGradGuard no_grad;
  const at::Tensor initial_G = initial_values();
  if (options_.agree_on_values) options_.agree_on_values(initial_G);
  install_parameters(initial_G);
  allocate_states(initial_G);
}

/// The leaves' values, laid out, in their own dtype.
at::Tensor ParamGroup::initial_values() const {
  const at::Tensor& first = parameters_.front().tensor;
  at::Tensor flat_G = at::zeros({layout_.padded_elements()}, first.options().requires_grad(false));
  for (size_t index = 0; index < parameters_.size(); ++index) {
    const at::Tensor& leaf = parameters_[index].tensor;
    const ElementRange range = layout_.range_of(static_cast<int64_t>(index));
    flat_G.slice(0, range.begin, range.end).view(leaf.sizes()).copy_(leaf.detach());
  }
  return flat_G;
}

void ParamGroup::install_parameters(const at::Tensor& initial_G) {
  flat_params_G_ = initial_G.to(options_.compute_dtype.value_or(initial_G.scalar_type()));
  for (size_t index = 0; index < parameters_.size(); ++index) {
    at::Tensor& leaf = parameters_[index].tensor;
    const ElementRange range = layout_.range_of(static_cast<int64_t>(index));
    leaf.set_data(flat_params_G_.slice(0, range.begin, range.end).view(leaf.sizes()));
  }
}

void ParamGroup::allocate_states(const at::Tensor& initial_G) {
  const ElementRange range = update_range();
  const at::Tensor& source = dtype() == at::kFloat ? flat_params_G_ : initial_G;
  const at::Tensor own = source.slice(0, range.begin, range.end);
  masters_U_ = dtype() == at::kFloat ? own : own.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  exp_avg_U_ = zeros_fp32(range.size(), flat_params_G_);
  exp_avg_sq_U_ = zeros_fp32(range.size(), flat_params_G_);
}

ElementRange ParamGroup::update_range() const {
  if (options_.shard_optimizer) return owned_range();
  return {0, layout_.padded_elements()};
}

void ParamGroup::publish_masters() {
  if (dtype() == at::kFloat) return;
  const ElementRange range = update_range();
  flat_params_G_.slice(0, range.begin, range.end).copy_(masters_U_);
}

void ParamGroup::add_grad(int64_t index, const at::Tensor& grad) {
  APUS_ASSERT(grad_state_ != GradState::kReducing, "a gradient of '", parameters_.at(index).name,
              "' arrived while its group is being reduced");
  if (!full_grad_G_.defined()) full_grad_G_ = zeros_fp32(layout_.padded_elements(), flat_params_G_);
  grad_state_ = GradState::kPartial;
  if (!grad.defined()) return;
  const FlatEntry& entry = layout_.entries()[static_cast<size_t>(index)];
  APUS_CHECK(grad.sizes() == at::IntArrayRef(entry.sizes), ShapeError, "gradient of '", entry.name,
             "' has ", grad.numel(), " elements in another shape than the parameter's ", entry.numel());
  const ElementRange range = layout_.range_of(index);
  full_grad_G_.slice(0, range.begin, range.end).view(entry.sizes).add_(grad);
}

at::Tensor ParamGroup::begin_reduce() {
  APUS_ASSERT(grad_state_ != GradState::kReducing, "group '", options_.name, "' is being reduced already");
  if (!full_grad_G_.defined()) full_grad_G_ = zeros_fp32(layout_.padded_elements(), flat_params_G_);
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
    shard_grad_S_ = reduced_shard;
  }
  full_grad_G_.reset();
}

at::Tensor ParamGroup::reduced_grad() const {
  APUS_ASSERT(grad_state_ == GradState::kSharded, "the gradients of group '", options_.name,
              "' are read before they are reduced");
  if (!keeps_full_gradient()) return shard_grad_S_;
  const ElementRange range = update_range();
  return full_grad_G_.slice(0, range.begin, range.end);
}

at::Tensor ParamGroup::owned_grad() const {
  APUS_ASSERT(grad_state_ == GradState::kSharded, "the gradients of group '", options_.name,
              "' are read before they are reduced");
  if (!keeps_full_gradient()) return shard_grad_S_;
  const ElementRange range = owned_range();
  return full_grad_G_.slice(0, range.begin, range.end);
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
