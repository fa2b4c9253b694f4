#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/nn/causal_lm.h"
#include "apus/peft/lora.h"
#include "apus/peft/lora_config.h"

namespace apus::peft {

/// Whether a loaded adapter goes on being trained.
enum class AdapterUse {
  kTrain,   ///< its tensors require gradients
  kFrozen,  ///< inference, or a reference
};

/// How load_adapter puts an adapter on the model.
struct APUS_API LoadAdapterOptions {
  AdapterUse use = AdapterUse::kTrain;
  at::ScalarType dtype = at::kFloat;  ///< tensors are converted to it
};

/// An adapter that is on the model now, and what is worth telling the user.
struct APUS_API LoadedAdapter {
  LoraSummary summary;
  std::vector<std::string> warnings;
};

/// Puts a PEFT adapter folder (adapter_config.json + adapter_model.safetensors) on the model.
///
/// Everything is checked before the model is touched: both files exist, every target has A [r, in] and B
/// [out, r], every trained bias and module to save its tensors, none is missing, doubled or left over, dtypes
/// are floating. A loaded adapter can be trained on: nothing of it is lost by saving it again.
/// Throws:  CheckpointError naming file and tensor, with the shape found and the one expected and where each
///          number comes from; NotSupported for features of later issues and for a pickled adapter_model.bin
///          (with the command that converts it); ConfigError if the adapter name is in use.
/// Source:  PEFT 0.21 layout: keys "base_model.model.<path>.lora_A.weight"; see adapter_key.
APUS_API LoadedAdapter load_adapter(const std::string& folder, nn::CausalLm& model, const std::string& name,
                                    const LoadAdapterOptions& options = {});

/// Writes an adapter folder that PEFT 0.21 loads; creates the folder, replaces the two files in it.
///
/// `tensors` are whole and under full names with the adapter name inside ("<path>.lora_A.<name>.weight"), as
/// adapter_parameters() gives them, on any device, fp32 or bf16 (saved as they are). Called by one rank.
/// Each file appears whole and durable, or not at all.
/// Throws:  ConfigError if the list is empty, a name is not of this adapter, an A lacks its B, a shape does
/// not
///          fit the module's rank, a dtype is another, or modules_to_save or bias of the configuration do not
///          fit the tensors; FileError if a file cannot be written.
APUS_API void save_adapter(const std::string& folder, const LoraConfig& config,
                           const std::vector<nn::NamedParameter>& tensors, const std::string& adapter_name);

/// The key of adapter_model.safetensors for a full parameter name, "base_model.model." in front:
///     x.lora_A.default.weight                -> x.lora_A.weight
///     x.base_layer.default.bias              -> x.base_layer.bias    (bias of a target)
///     x.modules_to_save.default.weight       -> x.weight             (modules_to_save; bias = all beside
///     targets)
/// Throws:  ConfigError if the name is not of this adapter.
APUS_API std::string adapter_key(const std::string& parameter_name, const std::string& adapter_name);

}  // namespace apus::peft
