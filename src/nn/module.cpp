#include "apus/nn/module.h"

#include <algorithm>

#include "apus/base/error.h"

namespace apus::nn {
namespace {

std::string join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

template <typename Entries>
bool contains(const Entries& entries, const std::string& name) {
  return std::any_of(entries.begin(), entries.end(), [&](const auto& entry) { return entry.first == name; });
}

}  // namespace

Module::~Module() = default;

std::vector<NamedParameter> Module::named_parameters(const std::string& prefix) const {
  std::vector<NamedParameter> found;
  for (const auto& [name, tensor] : parameters_) found.push_back({join(prefix, name), tensor});
  for (const auto& [name, child] : children_)
    for (NamedParameter& parameter : child->named_parameters(join(prefix, name)))
      found.push_back(std::move(parameter));
  return found;
}

std::vector<std::pair<std::string, Module*>> Module::named_modules(const std::string& prefix) {
  std::vector<std::pair<std::string, Module*>> found = {{prefix, this}};
  for (const auto& [name, child] : children_)
    for (auto& entry : child->named_modules(join(prefix, name))) found.push_back(std::move(entry));
  return found;
}

at::Tensor Module::register_parameter(std::string name, at::Tensor tensor) {
  APUS_CHECK(tensor.defined() && tensor.is_leaf(), ShapeError, "parameter '", name,
             "' must be a defined leaf tensor");
  APUS_CHECK(!name.empty() && !contains(parameters_, name) && !contains(children_, name), ConfigError,
             "this module already has a parameter or child named '", name, "'");
  parameters_.emplace_back(std::move(name), tensor);
  return tensor;
}

void Module::unregister_parameter(const std::string& name) {
  const auto removed = std::erase_if(parameters_, [&](const auto& entry) { return entry.first == name; });
  APUS_CHECK(removed == 1, ConfigError, "this module has no parameter named '", name, "'");
}

void Module::register_module(std::string name, Module& child) {
  APUS_CHECK(!name.empty() && !contains(parameters_, name) && !contains(children_, name), ConfigError,
             "this module already has a parameter or child named '", name, "'");
  APUS_CHECK(&child != this, ConfigError, "module '", name, "' cannot be its own child");
  children_.emplace_back(std::move(name), &child);
}

void make_trainable(Module& module) {
  for (const NamedParameter& parameter : module.named_parameters()) parameter.tensor.set_requires_grad(true);
}

}  // namespace apus::nn
