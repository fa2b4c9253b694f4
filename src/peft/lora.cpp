#include "apus/peft/lora.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/philox.h"
#include "peft/target_selection.h"

namespace apus::peft {
namespace {

using detail::Projection;

/// U(-1/sqrt(in), 1/sqrt(in)), each element drawn by its index in the whole tensor.
void fill_kaiming(at::Tensor& a_RI, uint64_t seed, const std::string& parameter_name) {
  const PhiloxSequence random(seed, parameter_name);
  const double bound = 1.0 / std::sqrt(static_cast<double>(a_RI.size(1)));
  const at::Tensor values_RI = at::empty(a_RI.sizes(), at::TensorOptions(at::kFloat));
  float* values = values_RI.mutable_data_ptr<float>();
  for (int64_t i = 0; i < values_RI.numel(); ++i)
    values[i] = static_cast<float>((2.0 * random.uniform(static_cast<uint64_t>(i)) - 1.0) * bound);
  const at::NoGradGuard no_grad;
  a_RI.copy_(values_RI);
}

}  // namespace

LoraSummary apply_lora(nn::CausalLm& model, const LoraConfig& config, const std::string& name,
                       const LoraInit& init) {
  const auto initialisation = config.kept.find("init_lora_weights");
  APUS_CHECK(initialisation == config.kept.end() || initialisation->second == "true", NotSupported,
             "init_lora_weights = ", initialisation->second,
             " is not supported yet for a new adapter; use true");
  APUS_CHECK(config.r >= 1, ConfigError, "lora_rank is ", config.r, ", expected at least 1");
  const detail::Selection selection = detail::select_targets(model, config.targets);
  if (!selection.unmatched.empty()) throw ConfigError(selection.unmatched.front());
  LoraSummary summary{.name = name, .config = config, .modules = {}, .parameters = 0};
  summary.config.targets = detail::resolve_targets(model, config.targets);
  detail::check_new_name(detail::projections_of(model), name);

  const nn::LoraOptions options{
      .rank = config.r, .alpha = config.lora_alpha, .use_rslora = config.use_rslora,
      .dropout = config.lora_dropout};
  for (const Projection& target : selection.targets) {
    nn::LoraAdapter& adapter = target.linear->add_adapter(name, options, init.dtype);
    adapter.a_RI.requires_grad_(true);  // at::zeros drops the option
    adapter.b_OR.requires_grad_(true);
    fill_kaiming(adapter.a_RI, init.seed, detail::name_of_a(target.path, name));
    summary.modules.push_back(target.path);
    summary.parameters += adapter.a_RI.numel() + adapter.b_OR.numel();
  }
  return summary;
}

std::vector<nn::NamedParameter> adapter_parameters(nn::CausalLm& model, const std::string& name) {
  std::vector<nn::NamedParameter> parameters;
  for (const Projection& projection : detail::projections_of(model)) {
    nn::LoraAdapter* adapter = projection.linear->find_adapter(name);
    if (!adapter) continue;
    parameters.push_back({detail::name_of_a(projection.path, name), adapter->a_RI});
    parameters.push_back({detail::name_of_b(projection.path, name), adapter->b_OR});
  }
  return parameters;
}

void copy_adapter(nn::CausalLm& model, const std::string& from, const std::string& to) {
  const std::vector<Projection> projections = detail::projections_of(model);
  detail::check_new_name(projections, to);
  const at::NoGradGuard no_grad;
  int64_t copied = 0;
  for (const Projection& projection : projections) {
    const nn::LoraAdapter* found = projection.linear->find_adapter(from);
    if (!found) continue;
    const nn::LoraAdapter source = *found;
    const nn::LoraOptions options{.rank = source.a_RI.size(0), .alpha = 1, .use_rslora = false};
    nn::LoraAdapter& copy = projection.linear->add_adapter(to, options, source.a_RI.scalar_type());
    copy.scaling = source.scaling;
    copy.a_RI.copy_(source.a_RI);
    copy.b_OR.copy_(source.b_OR);
    copy.a_RI.requires_grad_(false);
    copy.b_OR.requires_grad_(false);
    ++copied;
  }
  APUS_CHECK(copied > 0, ConfigError, "there is no adapter '", from, "' to copy");
}

void remove_adapter(nn::CausalLm& model, const std::string& name) {
  for (const Projection& projection : detail::projections_of(model))
    if (projection.linear->find_adapter(name)) projection.linear->remove_adapter(name);
}

}  // namespace apus::peft
