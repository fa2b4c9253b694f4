#include "apus/peft/lora.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/philox.h"
#include "peft/adapter_plan.h"

namespace apus::peft {
namespace {

using detail::Carrier;

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
  const detail::AdapterPlan plan = detail::plan_adapter(model, config, name);
  if (!plan.unmatched.empty()) throw ConfigError(plan.unmatched.front());
  return detail::build_adapter(plan, name, {.dtype = init.dtype}, [&](detail::NewParameter& parameter) {
    if (parameter.original.defined())
      parameter.tensor.copy_(parameter.original);
    else if (parameter.name.ends_with(".lora_A." + name + ".weight"))
      fill_kaiming(parameter.tensor, init.seed, parameter.name);
  });
}

std::vector<nn::NamedParameter> adapter_parameters(nn::CausalLm& model, const std::string& name) {
  std::vector<nn::NamedParameter> parameters;
  for (const Carrier& carrier : detail::carriers_of(model)) {
    if (const nn::LoraAdapter* lora = carrier.linear ? carrier.linear->find_adapter(name) : nullptr) {
      parameters.push_back({carrier.path + ".lora_A." + name + ".weight", lora->a_RI});
      parameters.push_back({carrier.path + ".lora_B." + name + ".weight", lora->b_OR});
    }
    for (const nn::NamedParameter& copy : carrier.module->copies(name))
      parameters.push_back({carrier.path + "." + copy.name, copy.tensor});
  }
  return parameters;
}

void copy_adapter(nn::CausalLm& model, const std::string& from, const std::string& to) {
  APUS_CHECK(!adapter_parameters(model, from).empty(), ConfigError, "there is no adapter '", from,
             "' to copy");
  const std::vector<Carrier> carriers = detail::carriers_of(model);
  detail::check_new_name(carriers, to);
  const at::NoGradGuard no_grad;
  const auto fill = [](at::Tensor copy, const at::Tensor& source) {
    copy.copy_(source);
    copy.requires_grad_(false);
  };
  for (const Carrier& carrier : carriers) {
    if (const nn::LoraAdapter* found = carrier.linear ? carrier.linear->find_adapter(from) : nullptr) {
      const nn::LoraAdapter source = *found;
      const nn::LoraOptions options{.rank = source.a_RI.size(0), .alpha = 1, .use_rslora = false};
      nn::LoraAdapter& copy = carrier.linear->add_adapter(to, options, source.a_RI.scalar_type());
      copy.scaling = source.scaling;
      fill(copy.a_RI, source.a_RI);
      fill(copy.b_OR, source.b_OR);
    }
    for (const nn::NamedParameter& source : carrier.module->copies(from)) {
      const bool of_base = source.name.starts_with("base_layer.");
      const nn::CopyOptions options{.adapter = to,
                                    .parameter = source.name.substr(source.name.rfind('.') + 1),
                                    .kind = of_base ? nn::CopyKind::kBaseLayer : nn::CopyKind::kModuleToSave,
                                    .dtype = source.tensor.scalar_type()};
      fill(carrier.module->add_copy(options), source.tensor);
    }
  }
}

void remove_adapter(nn::CausalLm& model, const std::string& name) {
  for (const Carrier& carrier : detail::carriers_of(model)) {
    if (carrier.linear && carrier.linear->find_adapter(name)) carrier.linear->remove_adapter(name);
    carrier.module->remove_copies(name);
  }
}

}  // namespace apus::peft
