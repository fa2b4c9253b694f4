#include "apus/nn/adaptable_module.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "apus/base/error.h"

namespace apus::nn {
namespace {

const char* folder_of(CopyKind kind) {
  return kind == CopyKind::kModuleToSave ? "modules_to_save." : "base_layer.";
}

}  // namespace

void AdaptableModule::allow_copies(const std::string& parameter, const at::Tensor& tensor) {
  originals_.push_back({parameter, tensor});
}

at::Tensor AdaptableModule::add_copy(const CopyOptions& options) {
  APUS_CHECK(!options.adapter.empty() && options.adapter.find('.') == std::string::npos, ConfigError,
             "an adapter's name must be a word without dots, it is '", options.adapter, "'");
  const auto original =
      std::find_if(originals_.begin(), originals_.end(),
                   [&](const NamedParameter& parameter) { return parameter.name == options.parameter; });
  APUS_CHECK(original != originals_.end(), ConfigError, "this module has no parameter '", options.parameter,
             "' that adapter '", options.adapter, "' could replace");
  APUS_CHECK(!this->find_copy(options.adapter, options.parameter).defined(), ConfigError,
             "this module already has a copy of '", options.parameter, "' for adapter '", options.adapter,
             "'");
  const at::Tensor values = at::zeros(original->tensor.sizes(),
                                      original->tensor.options().dtype(options.dtype).requires_grad(false));
  const std::string name = folder_of(options.kind) + options.adapter + "." + options.parameter;
  const at::Tensor copy = register_parameter(name, values.set_requires_grad(true));
  copies_.push_back({options.adapter, options.parameter, name, copy});
  return copy;
}

std::vector<NamedParameter> AdaptableModule::copies(const std::string& adapter) const {
  std::vector<NamedParameter> found;
  for (const Copy& copy : copies_)
    if (copy.adapter == adapter) found.push_back({copy.name, copy.tensor});
  return found;
}

at::Tensor AdaptableModule::find_copy(const std::string& adapter, const std::string& parameter) const {
  for (const Copy& copy : copies_)
    if (copy.adapter == adapter && copy.parameter == parameter) return copy.tensor;
  return {};
}

void AdaptableModule::remove_copies(const std::string& adapter) {
  for (const Copy& copy : copies_)
    if (copy.adapter == adapter) unregister_parameter(copy.name);
  std::erase_if(copies_, [&](const Copy& copy) { return copy.adapter == adapter; });
}

at::Tensor AdaptableModule::active_copy(const char* parameter, const PassContext& context) const {
  const Copy* found = nullptr;
  for (const Copy& copy : copies_) {
    if (copy.parameter != parameter) continue;
    const auto& names = context.adapters;
    if (std::find(names.begin(), names.end(), copy.adapter) == names.end()) continue;
    APUS_CHECK(!found, ConfigError, "adapters '", found->adapter, "' and '", copy.adapter,
               "' are active at a time and both replace the '", parameter,
               "' of one module; activate one of them");
    found = &copy;
  }
  return found ? found->tensor : at::Tensor();
}

at::Tensor AdaptableModule::active(const char* parameter, const at::Tensor& original,
                                   const PassContext& context) const {
  if (copies_.empty()) return original;
  const at::Tensor copy = this->active_copy(parameter, context);
  return copy.defined() ? copy.to(original.scalar_type()) : original;
}

}  // namespace apus::nn
