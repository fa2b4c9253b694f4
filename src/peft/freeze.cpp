#include "apus/peft/freeze.h"

#include <algorithm>
#include <set>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/nearest_name.h"
#include "apus/nn/adaptable_module.h"
#include "peft/adapter_plan.h"
#include "peft/name_pattern.h"

namespace apus::peft {
namespace {

using detail::Matcher;

/// What one option does to the names that it fits.
struct Rule {
  std::string key;      ///< the option
  std::string pattern;  ///< as given
  Matcher fits;
  bool trains = false;
};

/// The rules in the order in which they act.
std::vector<Rule> rules_of(const FreezeOptions& options) {
  std::vector<Rule> rules;
  const auto add = [&](const std::string& key, const std::vector<std::string>& prefixes,
                       const std::string& regex, bool trains) {
    for (const std::string& prefix : prefixes) {
      APUS_CHECK(!prefix.empty(), ConfigError, key, ": an empty name would fit every parameter");
      const auto begins = [prefix](const std::string& name) { return name.starts_with(prefix); };
      rules.push_back({key, prefix, begins, trains});
    }
    if (regex.empty()) return;
    const std::string regex_key = key + "_regex";
    rules.push_back(
        {regex_key, regex, detail::regex_matcher(regex, regex_key, detail::MatchExtent::kAnywhere), trains});
  };
  add("freeze_parameters", options.freeze_parameters, options.freeze_parameters_regex, false);
  add("trainable_parameters", options.trainable_parameters, options.trainable_parameters_regex, true);
  return rules;
}

/// Names up to each of their dots, and whole: what a prefix may have meant.
std::vector<std::string> prefixes_of(const std::vector<nn::NamedParameter>& parameters) {
  std::set<std::string> prefixes;
  for (const nn::NamedParameter& parameter : parameters) {
    for (size_t dot = parameter.name.find('.'); dot != std::string::npos;
         dot = parameter.name.find('.', dot + 1))
      prefixes.insert(parameter.name.substr(0, dot));
    prefixes.insert(parameter.name);
  }
  return {prefixes.begin(), prefixes.end()};
}

/// The names of parameters that adapters put on the model.
std::set<std::string> adapter_names(nn::CausalLm& model) {
  std::set<std::string> of_base, names;
  for (const detail::Carrier& carrier : detail::carriers_of(model))
    for (const nn::NamedParameter& original : carrier.module->originals())
      of_base.insert(carrier.path + "." + original.name);
  for (const detail::Carrier& carrier : detail::carriers_of(model))
    for (const nn::NamedParameter& parameter : carrier.module->named_parameters(carrier.path))
      if (!of_base.contains(parameter.name)) names.insert(parameter.name);
  return names;
}

/// How many parameters from the bottom a share of all elements freezes.
size_t frozen_count(const std::vector<nn::NamedParameter>& parameters, double ratio) {
  APUS_CHECK(ratio >= 0 && ratio <= 1, ConfigError, "freeze_parameters_ratio lies in [0, 1], it is ", ratio);
  int64_t total = 0, running = 0;
  for (const nn::NamedParameter& parameter : parameters) total += parameter.tensor.numel();
  const auto budget = static_cast<int64_t>(static_cast<double>(total) * ratio);
  size_t count = 0;
  if (ratio == 0) return count;
  for (const nn::NamedParameter& parameter : parameters) {
    running += parameter.tensor.numel();
    if (running > budget) break;
    ++count;
  }
  return count;
}

void apply_rule(const Rule& rule, const std::vector<nn::NamedParameter>& parameters,
                std::vector<bool>& trains) {
  bool hit = false;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!rule.fits(parameters[i].name)) continue;
    trains[i] = rule.trains;
    hit = true;
  }
  APUS_CHECK(hit, ConfigError, rule.key, ": '", rule.pattern, "' fits no parameter",
             did_you_mean(rule.pattern, prefixes_of(parameters)), "; the first is '",
             parameters.empty() ? "" : parameters.front().name, "'");
}

/// Refuses what would train the base beside an adapter, in whose file it would be missing.
void check_base_stays(const std::vector<Rule>& rules, const std::vector<nn::NamedParameter>& base) {
  for (const Rule& rule : rules) {
    if (!rule.trains) continue;
    const auto hit = std::find_if(base.begin(), base.end(), [&](const nn::NamedParameter& parameter) {
      return rule.fits(parameter.name);
    });
    APUS_CHECK(hit == base.end(), ConfigError, rule.key, ": '", rule.pattern, "' names '", hit->name,
               "' of the base, which an adapter's file does not hold; train it whole with modules_to_save");
  }
}

}  // namespace

bool FreezeOptions::any() const {
  return freeze_parameters_ratio != 0 || !freeze_parameters.empty() || !freeze_parameters_regex.empty() ||
         !trainable_parameters.empty() || !trainable_parameters_regex.empty();
}

FreezeReport freeze_parameters(nn::CausalLm& model, const FreezeOptions& options) {
  std::vector<nn::NamedParameter> parameters = model.named_parameters(), base;
  if (const std::set<std::string> own = adapter_names(model); !own.empty()) {
    const auto is_own = [&](const nn::NamedParameter& parameter) { return own.contains(parameter.name); };
    const auto middle = std::stable_partition(parameters.begin(), parameters.end(), is_own);
    base.assign(middle, parameters.end());
    parameters.erase(middle, parameters.end());
  }
  const std::vector<Rule> rules = rules_of(options);
  check_base_stays(rules, base);
  std::vector<bool> trains;
  for (const nn::NamedParameter& parameter : parameters) trains.push_back(parameter.tensor.requires_grad());
  const size_t frozen = frozen_count(parameters, options.freeze_parameters_ratio);
  std::fill_n(trains.begin(), frozen, false);
  for (const Rule& rule : rules) apply_rule(rule, parameters, trains);
  APUS_CHECK(std::find(trains.begin(), trains.end(), true) != trains.end(), ConfigError,
             "nothing would be trained: all ", parameters.size(),
             " parameters are frozen; freeze less, or name some in trainable_parameters");

  FreezeReport report;
  for (const nn::NamedParameter& parameter : base) report.frozen_elements += parameter.tensor.numel();
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].tensor.requires_grad_(trains[i]);
    (trains[i] ? report.trainable_elements : report.frozen_elements) += parameters[i].tensor.numel();
    if (trains[i]) report.trainable.push_back(parameters[i].name);
  }
  return report;
}

}  // namespace apus::peft
