#include "train/memory_plan_trainable.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/peft/lora_config.h"
#include "apus/train/job_settings.h"

namespace apus::train {
namespace {

peft::LoraConfig adapter_config(const JobOptions& options) {
  if (options.adapters.empty()) return lora_config(options);
  const std::filesystem::path path = std::filesystem::path(options.adapters) / "adapter_config.json";
  return peft::parse_lora_config(read_file(path), path.string()).config;
}

/// The module that a parameter is in, without the last component.
std::string module_of(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? std::string() : parameter.substr(0, dot);
}

bool ends_in(const std::string& path, const std::string& name) {
  return path.ends_with(name) && (path.size() == name.size() || path[path.size() - name.size() - 1] == '.');
}

/// Trainable copies of whole modules beside the frozen ones (modules_to_save).
void add_copies(ModelShape& model, const std::vector<std::string>& modules) {
  for (UnitShape& unit : model.units) {
    std::vector<ParameterShape> copies;
    for (const ParameterShape& parameter : unit.parameters) {
      const std::string module = module_of(parameter.name);
      const bool replaced =
          std::ranges::any_of(modules, [&](const std::string& name) { return ends_in(module, name); });
      if (!replaced) continue;
      ParameterShape copy = parameter;
      copy.name = module + ".modules_to_save." + kPolicyAdapter + parameter.name.substr(module.size());
      copy.dtype = at::kFloat;
      copy.trainable = true;
      copies.push_back(std::move(copy));
    }
    unit.parameters.insert(unit.parameters.end(), copies.begin(), copies.end());
  }
}

/// The parameters of full training: all but those that are frozen by the beginning of their names, a pattern,
/// or their place among the first ones; those that are asked for all the same.
void train_fully(ModelShape& model, const JobOptions& options) {
  const auto begins = [](const std::vector<std::string>& beginnings, const std::string& name) {
    return std::ranges::any_of(beginnings, [&](const std::string& start) { return name.starts_with(start); });
  };
  const auto pattern = [](const std::string& regex) {
    using Matcher = std::function<bool(const std::string&)>;
    return regex.empty() ? Matcher([](const std::string&) { return false; })
                         : peft::target_matcher({.regex = ".*(" + regex + ").*"});
  };
  const auto frozen = pattern(options.freeze_parameters_regex);
  const auto wanted = pattern(options.trainable_parameters_regex);
  const auto most =
      static_cast<int64_t>(options.freeze_parameters_ratio * static_cast<double>(model.elements()));
  int64_t passed = 0;
  for (UnitShape& unit : model.units) {
    for (ParameterShape& parameter : unit.parameters) {
      passed += parameter.numel();
      const std::string& name = parameter.name;
      const bool freezes = begins(options.freeze_parameters, name) || frozen(name) || passed <= most;
      parameter.trainable = !freezes || begins(options.trainable_parameters, name) || wanted(name);
    }
  }
}

}  // namespace

void make_trainable(ModelShape& model, const JobOptions& options) {
  if (options.train_type == "full") {
    train_fully(model, options);
  } else {
    const peft::LoraConfig config = adapter_config(options);
    const auto targets = peft::target_matcher(config.targets);
    AdapterShape adapter{.name = kPolicyAdapter,
                         .rank = [&](const std::string& path) { return targets(path) ? config.r : 0; }};
    add_adapter(model, adapter);
    const bool copies = !options.adapters.empty() && options.ref_adapters != "none";
    if (copies && (options.task.empty() || options.task == "dpo")) {
      adapter.name = kReferenceAdapter;
      adapter.trainable = false;
      add_adapter(model, adapter);
    }
    add_copies(model, options.modules_to_save);
  }
  APUS_CHECK(
      model.trainable_elements() > 0, ConfigError, "nothing of the model is trained; change ",
      options.train_type == "full" ? "--freeze_parameters or --trainable_parameters" : "--target_modules");
}

}  // namespace apus::train
