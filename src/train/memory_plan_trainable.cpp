#include "train/memory_plan_trainable.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/checkpoint/merge_places.h"
#include "apus/peft/freeze.h"
#include "apus/peft/lora_config.h"
#include "apus/train/job_settings.h"

namespace apus::train {
namespace {

using Matcher = std::function<bool(const std::string& path)>;

peft::LoraConfig adapter_config(const JobOptions& options) {
  if (options.adapters.empty()) return lora_config(options);
  const std::filesystem::path path =
      checkpoint::find_adapter(options.adapters).adapter / "adapter_config.json";
  return peft::parse_lora_config(read_file(path), path.string()).config;
}

/// The module that a parameter is in: its name without the last component.
std::string module_of(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? std::string() : parameter.substr(0, dot);
}

/// Whether an adapter trains a copy of a parameter of the base.
bool takes_copy(const std::string& parameter, const peft::LoraConfig& config, const Matcher& targets) {
  const std::string module = module_of(parameter);
  const bool whole = std::ranges::any_of(config.modules_to_save, [&](const std::string& name) {
    return module.ends_with(name) || module.find(name + ".") != std::string::npos;
  });
  if (whole) return true;
  const bool is_bias = parameter.ends_with(".bias");
  return is_bias && (config.bias == peft::LoraBias::kAll ||
                     (config.bias == peft::LoraBias::kLoraOnly && targets(module)));
}

/// Trainable copies beside the frozen parameters (modules_to_save, biases), in fp32 as they are made.
void add_copies(ModelShape& model, const peft::LoraConfig& config, const Matcher& targets) {
  for (UnitShape& unit : model.units) {
    std::vector<ParameterShape> copies;
    for (const ParameterShape& parameter : unit.parameters) {
      const bool of_base = parameter.name.find(".lora_") == std::string::npos;
      if (!of_base || !takes_copy(parameter.name, config, targets)) continue;
      ParameterShape copy = parameter;
      const std::string module = module_of(parameter.name);
      // A tied weight has one copy for the embedding and another for the head.
      copy.name = unit.name + "/" + module + ".modules_to_save" + parameter.name.substr(module.size());
      copy.dtype = at::kFloat;
      copy.trainable = true;
      copies.push_back(std::move(copy));
    }
    unit.parameters.insert(unit.parameters.end(), copies.begin(), copies.end());
  }
}

void add_adapters(ModelShape& shape, const JobOptions& options) {
  const peft::LoraConfig config = adapter_config(options);
  const Matcher targets = peft::lora_matcher(config);
  const auto sizes = peft::lora_sizes(config);
  AdapterShape adapter{.name = kPolicyAdapter, .rank = [&](const std::string& path) {
                         return targets(path) ? sizes(path).r : int64_t{0};
                       }};
  add_adapter(shape, adapter);
  if (options.task == "dpo" && !options.adapters.empty() && options.ref_adapters != "none") {
    adapter.name = kReferenceAdapter;
    adapter.trainable = false;
    add_adapter(shape, adapter);
  }
  add_copies(shape, config, targets);
}

}  // namespace

ModelShape trained_shape(nn::CausalLm& model, const JobOptions& options) {
  const bool full = options.train_type == "full";
  if (full) {
    nn::make_trainable(model);
    const peft::FreezeOptions freeze = freeze_options(options);
    if (freeze.any()) peft::freeze_parameters(model, freeze);
  }
  ModelShape shape = shape_of(model);
  if (!full) add_adapters(shape, options);
  return shape;
}

}  // namespace apus::train
