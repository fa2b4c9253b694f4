#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "apus/base/api.h"

namespace apus::nn {

/// A parameter under its full dotted name. The handle shares the module's TensorImpl, so whoever installs
/// other storage into it (set_data) changes what the module sees. Trainable = tensor.requires_grad().
struct APUS_API NamedParameter {
  std::string name;
  at::Tensor tensor;
};

/// A node of the module tree: named parameters and named children, in registration order.
///
/// Modules are not copied or moved (their parents hold pointers to them). A tied weight is registered once,
/// by its owner; the other user keeps a handle to the same tensor.
class APUS_API Module {
 public:
  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual ~Module();

  /// Parameters of this module and of its children, depth first, names joined by dots behind `prefix`.
  std::vector<NamedParameter> named_parameters(const std::string& prefix = "") const;

  /// This module ("" or `prefix`) and every module below it with its dotted path, depth first.
  std::vector<std::pair<std::string, Module*>> named_modules(const std::string& prefix = "");

 protected:
  /// Registers a leaf tensor under a name of this module and returns the handle to keep as a member.
  /// Throws:  ConfigError if the name is taken, ShapeError if the tensor is undefined or no leaf.
  at::Tensor register_parameter(std::string name, at::Tensor tensor);

  /// Removes a parameter registered by this module (an adapter that is taken off).
  void unregister_parameter(const std::string& name);

  /// Registers a child that this object owns and outlives. A name with dots ("layers.0") stands for path
  /// components that have no module of their own.
  /// Throws:  ConfigError if the name is taken.
  void register_module(std::string name, Module& child);

 private:
  std::vector<std::pair<std::string, at::Tensor>> parameters_;
  std::vector<std::pair<std::string, Module*>> children_;
};

/// Sets requires_grad on every parameter of the module: full fine-tuning. Parameters are frozen as built and
/// as loaded.
APUS_API void make_trainable(Module& module);

}  // namespace apus::nn
