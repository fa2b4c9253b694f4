#include "peft/target_selection.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "apus/base/error.h"
#include "apus/base/nearest_name.h"

namespace apus::peft::detail {
namespace {

std::string last_part(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}

std::vector<std::string> last_parts(const std::vector<Projection>& projections) {
  std::set<std::string> names;
  for (const Projection& projection : projections) names.insert(last_part(projection.path));
  return {names.begin(), names.end()};
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

void refuse_head_and_embedding(const std::string& path) {
  const std::string last = last_part(path);
  APUS_CHECK(last != "lm_head" && last != "embed_tokens", NotSupported, "target_modules: an adapter on '",
             path, "' is not supported yet; target the projections of the blocks, e.g. all-linear");
}

}  // namespace

std::vector<Projection> projections_of(nn::CausalLm& model) {
  std::vector<Projection> projections;
  for (const auto& [path, module] : model.named_modules())
    if (auto* linear = dynamic_cast<nn::Linear*>(module)) projections.push_back({path, linear});
  return projections;
}

Selection select_targets(nn::CausalLm& model, const LoraTargets& targets) {
  const auto matches = target_matcher(targets);
  const std::vector<Projection> projections = projections_of(model);
  Selection selection;
  if (targets.all_linear) {
    std::copy_if(projections.begin(), projections.end(), std::back_inserter(selection.targets),
                 [&](const Projection& projection) { return matches(projection.path); });
  } else {
    if (matches("lm_head")) refuse_head_and_embedding("lm_head");
    for (const auto& [path, module] : model.named_modules()) {
      if (!matches(path)) continue;
      refuse_head_and_embedding(path);
      auto* linear = dynamic_cast<nn::Linear*>(module);
      APUS_CHECK(linear, ConfigError, "target_modules: '", path,
                 "' is no projection; those of this model are ", joined(last_parts(projections)));
      selection.targets.push_back({path, linear});
    }
  }
  const std::vector<std::string> known = last_parts(projections);
  for (const std::string& name : targets.names) {
    refuse_head_and_embedding(name);
    const auto one = target_matcher({.names = {name}, .regex = "", .all_linear = false});
    const bool hit = std::any_of(selection.targets.begin(), selection.targets.end(),
                                 [&](const Projection& target) { return one(target.path); });
    if (!hit)
      selection.unmatched.push_back("target module '" + name + "' matches no projection" +
                                    did_you_mean(name, known) + "; those of this model are " + joined(known));
  }
  if (selection.targets.empty())
    throw ConfigError(!selection.unmatched.empty()
                          ? selection.unmatched.front()
                          : "target_modules: '" + targets.regex +
                                "' matches no projection; paths look like '" +
                                (projections.empty() ? "" : projections.front().path) + "'");
  return selection;
}

LoraTargets resolve_targets(nn::CausalLm& model, const LoraTargets& targets) {
  if (!targets.all_linear) return targets;
  const Selection selection = select_targets(model, targets);
  const LoraTargets short_names = LoraTargets::from_names(last_parts(selection.targets));
  // Short names do unless they would hit a module that all-linear leaves out.
  const auto matches = target_matcher(short_names);
  std::size_t hits = 0;
  for (const auto& [path, module] : model.named_modules()) hits += matches(path);
  if (hits == selection.targets.size()) return short_names;
  std::vector<std::string> paths;
  for (const Projection& target : selection.targets) paths.push_back(target.path);
  return LoraTargets::from_names(paths);
}

void check_new_name(const std::vector<Projection>& projections, const std::string& name) {
  APUS_CHECK(!name.empty() && name.find('.') == std::string::npos, ConfigError, "an adapter's name is '",
             name, "'; it may be neither empty nor hold a dot");
  for (const Projection& projection : projections)
    APUS_CHECK(!projection.linear->find_adapter(name), ConfigError, "there is an adapter '", name, "' on ",
               projection.path, " already");
}

std::string name_of_a(const std::string& path, const std::string& name) {
  return path + ".lora_A." + name + ".weight";
}

std::string name_of_b(const std::string& path, const std::string& name) {
  return path + ".lora_B." + name + ".weight";
}

}  // namespace apus::peft::detail
