#include "apus/nn/linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "apus/base/error.h"
#include "apus/base/philox.h"
#include "apus/nn/dropout_rows.h"
#include "apus/ops/cast.h"
#include "apus/ops/dropout.h"
#include "apus/ops/projection.h"

namespace apus::nn {
namespace {

// x A^T in the adapter's dtype (fp32 beside a bf16 base, say), of dropped x if the pass has dropout.
at::Tensor inner_rows(const LoraAdapter& adapter, const at::Tensor& x_TI, const PassContext& context) {
  if (!context.dropout || adapter.dropout == 0)
    return ops::linear(ops::cast(x_TI, adapter.a_RI.scalar_type()), adapter.a_RI);
  const ops::Dropout dropout{.p = adapter.dropout,
                             .key = philox_key(context.dropout->seed, adapter.dropout_path),
                             .rows = context.dropout->rows};
  return ops::dropout_linear(x_TI, adapter.a_RI, dropout);
}

// The scaling goes to the narrow side.
at::Tensor adapter_output(const LoraAdapter& adapter, const at::Tensor& x_TI, const PassContext& context) {
  const at::Tensor inner_TR = inner_rows(adapter, x_TI, context) * adapter.scaling;
  return ops::cast(ops::linear(inner_TR, adapter.b_OR), x_TI.scalar_type());
}

void check_options(const std::string& name, const LoraOptions& options) {
  APUS_CHECK(options.rank >= 1, ConfigError, "adapter '", name, "': the rank must be 1 or more, it is ",
             options.rank);
  APUS_CHECK(options.dropout >= 0 && options.dropout < 1, ConfigError, "adapter '", name,
             "': lora_dropout must be in [0, 1), it is ", options.dropout);
  APUS_CHECK(options.dropout == 0 || !options.path.empty(), ConfigError, "adapter '", name,
             "' has dropout, so it needs its layer's path (LoraOptions::path), which keys the mask");
}

}  // namespace

double LoraOptions::scaling() const {
  return alpha / (use_rslora ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
}

Linear::Linear(const LinearOptions& options) : options_(options) {
  APUS_CHECK(options.in_features > 0 && options.out_features > 0, ConfigError,
             "Linear needs positive sizes, got in_features ", options.in_features, " and out_features ",
             options.out_features);
  weight_OI_ =
      register_parameter("weight", at::empty({options.out_features, options.in_features}, options.dtype));
  allow_copies("weight", weight_OI_);
  if (!options.bias) return;
  bias_O_ = register_parameter("bias", at::empty({options.out_features}, options.dtype));
  allow_copies("bias", bias_O_);
}

at::Tensor Linear::active_weight(const PassContext& context) const {
  return active("weight", weight_OI_, context);
}

at::Tensor Linear::active_bias(const PassContext& context) const {
  return bias_O_.defined() ? active("bias", bias_O_, context) : bias_O_;
}

at::Tensor Linear::forward(const at::Tensor& x_TI, const PassContext& context) const {
  if (boundary_) return forward_across(*boundary_, x_TI, context);
  return add_adapters(ops::linear(x_TI, active_weight(context), active_bias(context)), x_TI, context);
}

// The bias comes behind leave(): where that sums over ranks, it must count once.
at::Tensor Linear::forward_across(const Boundary& boundary, const at::Tensor& x_TI,
                                  const PassContext& context) const {
  const at::Tensor entered_TI = boundary.enter(x_TI);
  const at::Tensor y_TO =
      boundary.leave(add_adapters(ops::linear(entered_TI, active_weight(context)), entered_TI, context));
  return bias_O_.defined() ? y_TO + active_bias(context) : y_TO;
}

at::Tensor Linear::add_adapters(at::Tensor y_TO, const at::Tensor& x_TI, const PassContext& context) const {
  if (adapters_.empty()) return y_TO;
  for (const std::string& name : context.adapters) {
    const auto found = adapters_.find(name);
    if (found != adapters_.end()) y_TO = y_TO + adapter_output(found->second, x_TI, context);
  }
  return y_TO;
}

LoraAdapter& Linear::add_adapter(const std::string& name, const LoraOptions& options, at::ScalarType dtype) {
  APUS_CHECK(!name.empty() && name.find('.') == std::string::npos, ConfigError,
             "an adapter's name must be a word without dots, it is '", name, "'");
  APUS_CHECK(!adapters_.contains(name), ConfigError, "this layer already has an adapter named '", name, "'");
  check_options(name, options);
  const auto trainable_zeros = [&](int64_t rows, int64_t columns) {
    return at::zeros({rows, columns}, weight_OI_.options().dtype(dtype)).set_requires_grad(true);
  };
  LoraAdapter adapter;
  adapter.a_RI =
      register_parameter("lora_A." + name + ".weight", trainable_zeros(options.rank, options_.in_features));
  adapter.b_OR =
      register_parameter("lora_B." + name + ".weight", trainable_zeros(options_.out_features, options.rank));
  adapter.scaling = options.scaling();
  adapter.dropout = options.dropout;
  if (options.dropout > 0) adapter.dropout_path = options.path + ".lora_dropout." + name;
  return adapters_.emplace(name, std::move(adapter)).first->second;
}

void Linear::remove_adapter(const std::string& name) {
  APUS_CHECK(adapters_.erase(name) == 1, ConfigError, "this layer has no adapter named '", name, "'");
  unregister_parameter("lora_A." + name + ".weight");
  unregister_parameter("lora_B." + name + ".weight");
}

LoraAdapter* Linear::find_adapter(const std::string& name) {
  const auto found = adapters_.find(name);
  return found == adapters_.end() ? nullptr : &found->second;
}

const LoraAdapter* Linear::find_adapter(const std::string& name) const {
  const auto found = adapters_.find(name);
  return found == adapters_.end() ? nullptr : &found->second;
}

int64_t Linear::largest_rank() const {
  int64_t rank = 0;
  for (const auto& [name, adapter] : adapters_) rank = std::max(rank, adapter.a_RI.size(0));
  return rank;
}

std::optional<ops::JointPart> Linear::plain_part(const PassContext& context) const {
  if (boundary_) return std::nullopt;
  ops::JointPart part{.weight_OD = weight_OI_, .bias_O = bias_O_};
  for (const std::string& name : context.adapters) {
    if (!copies(name).empty()) return std::nullopt;
    const LoraAdapter* adapter = find_adapter(name);
    if (!adapter) continue;
    const bool dropped = context.dropout && adapter->dropout > 0;
    if (part.has_adapter() || dropped || adapter->a_RI.scalar_type() != weight_OI_.scalar_type())
      return std::nullopt;
    part.a_RD = adapter->a_RI;
    part.b_OR = adapter->b_OR;
    part.scaling = adapter->scaling;
  }
  return part;
}

}  // namespace apus::nn
