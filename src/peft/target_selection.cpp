#include "peft/target_selection.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "apus/base/error.h"
#include "apus/base/join_words.h"
#include "apus/base/nearest_name.h"
#include "peft/name_pattern.h"

namespace apus::peft::detail {
namespace {

std::string last_part(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}

std::vector<std::string> paths_of(const std::vector<Projection>& projections) {
  std::vector<std::string> paths;
  for (const Projection& projection : projections) paths.push_back(projection.path);
  return paths;
}

void refuse_head_and_embedding(const std::string& path) {
  const std::string last = last_part(path);
  APUS_CHECK(last != "lm_head" && last != "embed_tokens", NotSupported, "target_modules: an adapter on '",
             path, "' is not supported yet; target the projections of the blocks, e.g. all-linear");
}

[[noreturn]] void refuse_nothing(const Selection& selection, const LoraConfig& config,
                                 const std::vector<Projection>& projections) {
  if (!selection.unmatched.empty()) throw ConfigError(selection.unmatched.front());
  APUS_CHECK(config.scope.is_open() && config.modules_to_save.empty(), ConfigError,
             "no projection is a target: target_modules, less what exclude_modules, layers_to_transform and "
             "modules_to_save leave out, is empty");
  throw ConfigError("target_modules: '" + config.targets.regex +
                    "' matches no projection; paths look like '" +
                    (projections.empty() ? "" : projections.front().path) + "'");
}

}  // namespace

std::vector<Projection> projections_of(nn::CausalLm& model) {
  std::vector<Projection> projections;
  for (const auto& [path, module] : model.named_modules())
    if (auto* linear = dynamic_cast<nn::Linear*>(module)) projections.push_back({path, linear});
  return projections;
}

std::vector<std::string> last_parts(const std::vector<std::string>& paths) {
  std::set<std::string> names;
  for (const std::string& path : paths) names.insert(last_part(path));
  return {names.begin(), names.end()};
}

Selection select_targets(nn::CausalLm& model, const LoraConfig& config) {
  const LoraTargets& targets = config.targets;
  const auto matches = lora_matcher(config);
  const std::vector<Projection> projections = projections_of(model);
  const auto modules = model.named_modules();
  Selection selection;
  if (targets.all_linear) {
    std::copy_if(projections.begin(), projections.end(), std::back_inserter(selection.targets),
                 [&](const Projection& projection) { return matches(projection.path); });
  } else {
    if (matches("lm_head")) refuse_head_and_embedding("lm_head");
    for (const auto& [path, module] : modules) {
      if (!matches(path)) continue;
      refuse_head_and_embedding(path);
      auto* linear = dynamic_cast<nn::Linear*>(module);
      APUS_CHECK(linear, ConfigError, "target_modules: '", path,
                 "' is no projection; those of this model are ",
                 join_words(last_parts(paths_of(projections))));
      selection.targets.push_back({path, linear});
    }
  }
  const std::vector<std::string> known = last_parts(paths_of(projections));
  for (const std::string& name : targets.names) {
    if (matches(name)) refuse_head_and_embedding(name);
    // What is excluded, or trained whole, counts as found.
    const bool hit = std::any_of(modules.begin(), modules.end(),
                                 [&](const auto& module) { return names_module(module.first, name); });
    if (!hit)
      selection.unmatched.push_back("target module '" + name + "' matches no projection" +
                                    did_you_mean(name, known) + "; those of this model are " +
                                    join_words(known));
  }
  if (selection.targets.empty()) refuse_nothing(selection, config, projections);
  return selection;
}

LoraTargets resolve_targets(nn::CausalLm& model, const LoraConfig& config) {
  if (!config.targets.all_linear) return config.targets;
  const LoraConfig open{.targets = config.targets};  // PEFT lists all of them, then narrows
  const Selection selection = select_targets(model, open);
  const LoraTargets short_names = LoraTargets::from_names(last_parts(paths_of(selection.targets)));
  // Short names do unless they would hit a module that all-linear leaves out.
  const auto matches = target_matcher(short_names);
  std::size_t hits = 0;
  for (const auto& [path, module] : model.named_modules()) hits += matches(path);
  if (hits == selection.targets.size()) return short_names;
  return LoraTargets::from_names(paths_of(selection.targets));
}

}  // namespace apus::peft::detail
