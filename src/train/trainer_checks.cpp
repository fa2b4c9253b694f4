#include "train/trainer_checks.h"

#include <algorithm>
#include <array>

#include "apus/base/error.h"
#include "apus/data/batch.h"
#include "apus/data/collator.h"
#include "apus/nn/linear.h"
#include "apus/peft/lora.h"

namespace apus::train {
namespace {

/// "default" of "model.layers.0.self_attn.q_proj.lora_A.default.weight"; empty for other parameters.
std::string adapter_of(const std::string& parameter) {
  for (const char* mark : {".lora_A.", ".lora_B.", ".modules_to_save.", ".base_layer."}) {
    const size_t place = parameter.find(mark);
    if (place == std::string::npos) continue;
    const size_t begin = place + std::string(mark).size();
    return parameter.substr(begin, parameter.find('.', begin) - begin);
  }
  return {};
}

std::vector<nn::NamedParameter> require_adapter(nn::CausalLm& model, const std::string& name) {
  auto parameters = peft::adapter_parameters(model, name);
  APUS_CHECK(!parameters.empty(), ConfigError, "the model has no adapter \"", name,
             "\"; put it on with peft::apply_lora or peft::load_adapter first");
  return parameters;
}

}  // namespace

void require_active_adapters(nn::CausalLm& model, const std::vector<std::string>& active) {
  for (const std::string& name : active) require_adapter(model, name);
  for (const nn::NamedParameter& parameter : model.named_parameters()) {
    const std::string adapter = adapter_of(parameter.name);
    if (adapter.empty() || !parameter.tensor.requires_grad()) continue;
    APUS_CHECK(std::find(active.begin(), active.end(), adapter) != active.end(), ConfigError, "adapter \"",
               adapter, "\" is trainable (", parameter.name,
               ") but not active, so it would get no gradient; name it among "
               "the trained adapters or load it frozen");
  }
}

void require_frozen_adapters(nn::CausalLm& model, const std::vector<std::string>& reference) {
  for (const std::string& name : reference) {
    for (const nn::NamedParameter& parameter : require_adapter(model, name)) {
      APUS_CHECK(!parameter.tensor.requires_grad(), ConfigError, "the reference adapter \"", name,
                 "\" is trainable (", parameter.name,
                 "), so the reference would move; use a frozen copy (peft::copy_adapter)");
    }
  }
}

bool has_adapter_dropout(nn::CausalLm& model, const std::vector<std::string>& active) {
  for (const auto& [path, module] : model.named_modules()) {
    auto* linear = dynamic_cast<nn::Linear*>(module);
    if (linear == nullptr) continue;
    for (const std::string& name : active) {
      const nn::LoraAdapter* adapter = linear->find_adapter(name);
      if (adapter != nullptr && adapter->dropout > 0.0) return true;
    }
  }
  return false;
}

void require_rows(const data::Dataset& dataset, RowKind kind, const data::CollateOptions& collate) {
  if (dataset.size() == 0) return;
  const std::array<int64_t, 1> first{0};
  const bool pairs = dataset.collate(first, collate).pairs > 0;
  APUS_CHECK(pairs == (kind == RowKind::kPairs), ConfigError, dataset.place_text(0), " is ",
             pairs ? "a preference pair, but SFT trains single texts"
                   : "a single text, but DPO trains preference pairs",
             "; use the trainer of the data's kind");
}

}  // namespace apus::train
