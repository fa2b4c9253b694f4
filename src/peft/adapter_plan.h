#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "apus/nn/adaptable_module.h"
#include "apus/nn/causal_lm.h"
#include "apus/peft/adapter_file.h"
#include "apus/peft/lora.h"
#include "apus/peft/lora_config.h"
#include "peft/target_selection.h"

namespace apus::peft::detail {

/// A projection that gets A and B.
struct PlannedLora {
  Projection target;
  nn::LoraOptions options;
};

/// A parameter that gets a trained copy.
struct PlannedCopy {
  std::string path;  ///< of the module
  nn::AdaptableModule* module = nullptr;
  nn::NamedParameter original;  ///< under its name in the module
  nn::CopyKind kind = nn::CopyKind::kModuleToSave;
};

/// Everything that a configuration puts on a model, found and checked before the model is touched.
struct AdapterPlan {
  std::vector<PlannedLora> loras;
  std::vector<PlannedCopy> copies;
  std::vector<std::string> unmatched;  ///< messages on names that match nothing, with the nearest
  LoraConfig config;                   ///< targets resolved
};

/// Throws ConfigError and NotSupported as select_targets does, or if a projection is to have LoRA and to be
/// trained whole, or the adapter's name cannot be one or is in use.
AdapterPlan plan_adapter(nn::CausalLm& model, const LoraConfig& config, const std::string& name);

/// A parameter of an adapter that was just put on a model: what it is, and the tensor to be filled.
struct NewParameter {
  std::string name;     ///< full
  at::Tensor tensor;    ///< zeros
  at::Tensor original;  ///< the base's, of a copy; undefined for A and B
};

/// How the planned tensors are made.
struct BuildOptions {
  at::ScalarType dtype = at::kFloat;
  AdapterUse use = AdapterUse::kTrain;
};

/// Puts the planned adapter on the model, calling `fill` for every tensor under no-grad.
LoraSummary build_adapter(const AdapterPlan& plan, const std::string& name, const BuildOptions& options,
                          const std::function<void(NewParameter&)>& fill);

/// A module that may carry a part of an adapter.
struct Carrier {
  std::string path;
  nn::AdaptableModule* module = nullptr;
  nn::Linear* linear = nullptr;  ///< the same, if it is a projection
};

/// Every such module, in the model's order.
std::vector<Carrier> carriers_of(nn::CausalLm& model);

/// Throws ConfigError if the name cannot be an adapter's or is in use on one of the modules.
void check_new_name(const std::vector<Carrier>& carriers, const std::string& name);

}  // namespace apus::peft::detail
