#include "apus/nn/joint_linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "apus/base/error.h"
#include "apus/memory/staged_copy.h"
#include "apus/ops/joint_linear.h"

namespace apus::nn {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// The dtype that all weights and biases share, if they are frozen.
std::optional<at::ScalarType> frozen_dtype(const std::vector<const Linear*>& projections) {
  const at::ScalarType dtype = projections[0]->weight().scalar_type();
  for (const Linear* projection : projections) {
    for (const at::Tensor& tensor : {projection->weight(), projection->bias()}) {
      if (tensor.defined() && (tensor.requires_grad() || tensor.scalar_type() != dtype)) return std::nullopt;
    }
  }
  return dtype;
}

int64_t widest_adapter(const std::vector<const Linear*>& projections) {
  int64_t rank = 0;
  for (const Linear* projection : projections) rank = std::max(rank, projection->largest_rank());
  return rank;
}

}  // namespace

JointLinear::JointLinear(std::vector<const Linear*> projections, ops::JointLayout layout)
    : projections_(std::move(projections)), layout_(layout) {
  APUS_CHECK(!projections_.empty(), ConfigError, "a joint projection needs one projection or more");
  for (const Linear* projection : projections_) {
    const int64_t in = projection->options().in_features, expected = projections_[0]->options().in_features;
    APUS_CHECK(in == expected, ConfigError, "joint projections read one input, but their in_features are ",
               expected, " and ", in);
  }
}

at::Tensor JointLinear::forward(const at::Tensor& x_TI, const PassContext& context,
                                const JointUse& use) const {
  std::vector<ops::JointPart> parts;
  for (const Linear* projection : projections_) {
    std::optional<ops::JointPart> part = projection->plain_part(context);
    if (!part || part->weight_OD.scalar_type() != x_TI.scalar_type())
      return forward_apart(x_TI, context, use);
    parts.push_back(std::move(*part));
  }
  return ops::joint_linear(x_TI, parts,
                           {.home = has_live_home() ? home_ : nullptr,
                            .residual_TO = use.residual_TO,
                            .gradients = context.gradients,
                            .remake_x = use.remake_x,
                            .output_is_unread = use.output_is_unread});
}

at::Tensor JointLinear::forward_apart(const at::Tensor& x_TI, const PassContext& context,
                                      const JointUse& use) const {
  std::vector<at::Tensor> outputs;
  for (const Linear* projection : projections_) outputs.push_back(projection->forward(x_TI, context));
  const at::Tensor joined = outputs.size() == 1 ? outputs[0] : at::cat(outputs, 1);
  return use.residual_TO.defined() ? joined + use.residual_TO : joined;
}

bool JointLinear::has_live_home() const {
  return home_ && std::all_of(projections_.begin(), projections_.end(), [this](const Linear* projection) {
           return home_->holds(projection->weight());
         });
}

bool JointLinear::has_active_adapter(const PassContext& context) const {
  return std::any_of(projections_.begin(), projections_.end(), [&](const Linear* projection) {
    return std::any_of(context.adapters.begin(), context.adapters.end(),
                       [&](const std::string& name) { return projection->find_adapter(name) != nullptr; });
  });
}

ops::RowRoom JointLinear::input_room(const PassContext& context) const {
  return has_live_home() && has_active_adapter(context) ? home_->input_room() : ops::RowRoom();
}

ops::RowRoom JointLinear::grad_room(const PassContext& context) const {
  return has_live_home() && has_active_adapter(context) ? home_->grad_room() : ops::RowRoom();
}

void JointLinear::place(const PlaceOptions& options) {
  if (options.device.is_cuda()) make_home(options);
}

void JointLinear::make_home(const PlaceOptions& options) {
  const std::optional<at::ScalarType> stored = frozen_dtype(projections_);
  if (!stored) return;
  ops::JointHomeOptions home{.in_features = projections_[0]->options().in_features,
                             .rank = round_up(options.room_rank.value_or(widest_adapter(projections_)), 8),
                             .layout = layout_,
                             .dtype = options.frozen_dtype.value_or(*stored),
                             .device = options.device};
  if (has_live_home() && home_->options().dtype == home.dtype && home_->options().rank >= home.rank &&
      is_on(projections_[0]->weight(), home.device))
    return;
  for (const Linear* projection : projections_) {
    home.out_features.push_back(projection->weight().size(0));
    home.bias = home.bias || projection->bias().defined();
  }
  home_ = std::make_shared<ops::JointHome>(home);
  const at::NoGradGuard no_grad;
  const auto move_in = [&](const at::Tensor& leaf, at::Tensor place) {
    if (!leaf.defined()) return;
    place.copy_(is_on(leaf, home.device)
                    ? leaf
                    : memory::staged_to(leaf.detach().contiguous(), home.device, home.dtype));
    leaf.set_data(place);
  };
  for (size_t part = 0; part < projections_.size(); ++part) {
    move_in(projections_[part]->weight(), home_->weight(part));
    move_in(projections_[part]->bias(), home_->bias(part));
  }
}

}  // namespace apus::nn
