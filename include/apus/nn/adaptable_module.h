#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "apus/base/api.h"
#include "apus/nn/module.h"
#include "apus/nn/pass_context.h"

namespace apus::nn {

/// Which part of an adapter a copy belongs to; it shows in the copy's name and in PEFT's file.
enum class CopyKind {
  /// The module is trained whole: "modules_to_save.<adapter>.<parameter>"; in the file "<parameter>".
  kModuleToSave,
  /// The bias of a projection that has LoRA: "base_layer.<adapter>.bias"; in the file "base_layer.bias".
  kBaseLayer,
};

/// What add_copy makes.
struct APUS_API CopyOptions {
  std::string adapter;
  /// One of the module's own parameters: "weight", "bias".
  std::string parameter;
  CopyKind kind = CopyKind::kModuleToSave;
  at::ScalarType dtype = at::kFloat;
};

/// A module whose own parameters adapters may replace by trained copies (PEFT's modules_to_save and bias).
///
/// A pass that names the adapter reads its copy instead of the base's parameter; the base keeps its values
/// and stays what passes without the adapter see. A copy of another dtype is rounded to the base's where it
/// is used. Copies are parameters of this module, listed behind its own.
class APUS_API AdaptableModule : public Module {
 public:
  /// The parameters that may be replaced, under their names in this module. A tied head lists the tensor that
  /// it shares.
  const std::vector<NamedParameter>& originals() const { return originals_; }

  /// Registers a trainable zero-filled copy, which the caller fills, and returns its handle.
  /// Throws:  ConfigError if the adapter's name is empty or has a dot, there is no such parameter, or it has
  /// a
  ///          copy for this adapter.
  at::Tensor add_copy(const CopyOptions& options);

  /// An adapter's copies under their names in this module, e.g. "modules_to_save.default.weight".
  std::vector<NamedParameter> copies(const std::string& adapter) const;

  /// Undefined if the adapter has no copy of this parameter.
  at::Tensor find_copy(const std::string& adapter, const std::string& parameter) const;

  /// Takes an adapter's copies off; does nothing if there are none.
  void remove_copies(const std::string& adapter);

 protected:
  /// Makes a tensor of this module, registered or shared, one that copies may replace.
  void allow_copies(const std::string& parameter, const at::Tensor& tensor);

  /// The copy that a pass reads in a parameter's place, as it is stored; undefined if it reads the original.
  /// Throws:  ConfigError if two active adapters have a copy of it.
  at::Tensor active_copy(const char* parameter, const PassContext& context) const;

  /// What a pass reads: the active copy in the original's dtype, or the original itself.
  /// Throws:  as active_copy.
  at::Tensor active(const char* parameter, const at::Tensor& original, const PassContext& context) const;

 private:
  struct Copy {
    std::string adapter, parameter, name;
    at::Tensor tensor;
  };

  std::vector<NamedParameter> originals_;
  std::vector<Copy> copies_;
};

}  // namespace apus::nn
