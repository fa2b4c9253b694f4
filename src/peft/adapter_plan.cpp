#include "peft/adapter_plan.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/join_words.h"
#include "apus/base/nearest_name.h"
#include "peft/name_pattern.h"

namespace apus::peft::detail {
namespace {

/// Names in modules_to_save that no module bears.
std::vector<std::string> unmatched_saved(const std::vector<Carrier>& carriers,
                                         const std::vector<std::string>& texts) {
  std::vector<std::string> paths, messages;
  for (const Carrier& carrier : carriers) paths.push_back(carrier.path);
  const std::vector<std::string> known = last_parts(paths);
  for (const std::string& text : texts) {
    const bool hit = std::any_of(paths.begin(), paths.end(),
                                 [&](const std::string& path) { return is_saved_by(path, text); });
    if (!hit)
      messages.push_back("modules_to_save: '" + text + "' matches no module" + did_you_mean(text, known) +
                         "; those of this model are " + join_words(known));
  }
  return messages;
}

/// The copies that one module gets.
void plan_copies(const Carrier& carrier, const LoraConfig& config, bool has_lora,
                 std::vector<PlannedCopy>& copies) {
  const bool saved = is_saved(carrier.path, config.modules_to_save);
  APUS_CHECK(!saved || !has_lora, ConfigError, "'", carrier.path,
             "' is a target of LoRA and in modules_to_save at a time; leave it out of one of them");
  const bool bias = config.bias == LoraBias::kAll || (config.bias == LoraBias::kLoraOnly && has_lora);
  const auto kind = has_lora ? nn::CopyKind::kBaseLayer : nn::CopyKind::kModuleToSave;
  for (const nn::NamedParameter& original : carrier.module->originals()) {
    if (saved || (bias && original.name == "bias"))
      copies.push_back({carrier.path, carrier.module, original, kind});
  }
}

}  // namespace

std::vector<Carrier> carriers_of(nn::CausalLm& model) {
  std::vector<Carrier> carriers;
  for (const auto& [path, module] : model.named_modules())
    if (auto* adaptable = dynamic_cast<nn::AdaptableModule*>(module))
      carriers.push_back({path, adaptable, dynamic_cast<nn::Linear*>(module)});
  return carriers;
}

void check_new_name(const std::vector<Carrier>& carriers, const std::string& name) {
  APUS_CHECK(!name.empty() && name.find('.') == std::string::npos, ConfigError, "an adapter's name is '",
             name, "'; it may be neither empty nor hold a dot");
  for (const Carrier& carrier : carriers) {
    const bool taken =
        !carrier.module->copies(name).empty() || (carrier.linear && carrier.linear->find_adapter(name));
    APUS_CHECK(!taken, ConfigError, "there is an adapter '", name, "' on ", carrier.path, " already");
  }
}

AdapterPlan plan_adapter(nn::CausalLm& model, const LoraConfig& config, const std::string& name) {
  for (const std::string& text : config.modules_to_save)
    APUS_CHECK(!text.empty(), ConfigError,
               "modules_to_save has an empty name, which would name every module");
  Selection selection = select_targets(model, config);
  const std::vector<Carrier> carriers = carriers_of(model);
  check_new_name(carriers, name);
  AdapterPlan plan{.unmatched = std::move(selection.unmatched), .config = config};
  plan.config.targets = resolve_targets(model, config);
  const auto size_of = lora_sizes(config);
  std::set<const nn::AdaptableModule*> adapted;
  for (const Projection& target : selection.targets) {
    const LoraSize size = size_of(target.path);
    plan.loras.push_back({target,
                          {.rank = size.r,
                           .alpha = size.alpha,
                           .use_rslora = config.use_rslora,
                           .dropout = config.lora_dropout,
                           .path = target.path}});
    adapted.insert(target.linear);
  }
  for (const Carrier& carrier : carriers)
    plan_copies(carrier, config, adapted.contains(carrier.module), plan.copies);
  for (std::string& message : unmatched_saved(carriers, config.modules_to_save))
    plan.unmatched.push_back(std::move(message));
  return plan;
}

LoraSummary build_adapter(const AdapterPlan& plan, const std::string& name, const BuildOptions& options,
                          const std::function<void(NewParameter&)>& fill) {
  const at::NoGradGuard no_grad;
  LoraSummary summary{.name = name, .config = plan.config};
  const auto finish = [&](NewParameter parameter) {
    fill(parameter);
    parameter.tensor.requires_grad_(options.use == AdapterUse::kTrain);
    summary.parameters += parameter.tensor.numel();
  };
  for (const PlannedLora& planned : plan.loras) {
    nn::LoraAdapter& adapter = planned.target.linear->add_adapter(name, planned.options, options.dtype);
    finish({.name = planned.target.path + ".lora_A." + name + ".weight", .tensor = adapter.a_RI});
    finish({.name = planned.target.path + ".lora_B." + name + ".weight", .tensor = adapter.b_OR});
    summary.modules.push_back(planned.target.path);
  }
  for (const PlannedCopy& planned : plan.copies) {
    const at::Tensor copy = planned.module->add_copy(
        {.adapter = name, .parameter = planned.original.name, .kind = planned.kind, .dtype = options.dtype});
    const std::string full = planned.path + "." + planned.module->copies(name).back().name;
    finish({.name = full, .tensor = copy, .original = planned.original.tensor});
    summary.copies.push_back(planned.path + "." + planned.original.name);
  }
  return summary;
}

}  // namespace apus::peft::detail
