#include <algorithm>
#include <utility>

#include "apus/base/error.h"
#include "apus/peft/lora_config.h"
#include "peft/name_pattern.h"

namespace apus::peft {
namespace {

using detail::Matcher;
using detail::MatchExtent;
using detail::names_module;
using detail::regex_matcher;

bool named_by(const std::vector<std::string>& names, const std::string& path) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return names_module(path, name); });
}

/// What modules_to_save takes away from the targets: modules of these names, and all below them.
bool lies_within(const std::vector<std::string>& names, const std::string& path) {
  for (size_t end = path.find('.');; end = path.find('.', end + 1)) {
    if (named_by(names, path.substr(0, end))) return true;
    if (end == std::string::npos) return false;
  }
}

/// The index of the layer of a path, -1 if it has none.
int64_t layer_of(const std::string& path, const std::vector<std::string>& patterns) {
  for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1)) {
    const size_t end = path.find('.', dot + 1);
    if (end == std::string::npos) return -1;
    const std::string before = path.substr(0, dot), part = path.substr(dot + 1, end - dot - 1);
    // Without patterns PEFT wants two components in front of the index: "model.layers.3.".
    const bool fits = patterns.empty() ? before.find('.') != std::string::npos : named_by(patterns, before);
    const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    if (fits && is_number && part.size() < 10) return std::stoll(part);
  }
  return -1;
}

Matcher exclusion(const LoraConfig& config) {
  const LoraScope& scope = config.scope;
  Matcher by_regex = [](const std::string&) { return false; };
  if (!scope.exclude_regex.empty())
    by_regex = regex_matcher(scope.exclude_regex, "exclude_modules", MatchExtent::kWhole);
  return [by_regex, names = scope.exclude_names, saved = config.modules_to_save](const std::string& path) {
    return by_regex(path) || named_by(names, path) || lies_within(saved, path);
  };
}

/// The value of the first key that matches; the keys' expressions are compiled once.
template <typename Value>
std::function<Value(const std::string&)> pattern_value(const std::map<std::string, Value>& patterns,
                                                       const char* key, Value otherwise) {
  std::vector<std::pair<Matcher, Value>> compiled;
  for (const auto& [pattern, value] : patterns)
    compiled.emplace_back(regex_matcher("(.*\\.)?(" + pattern + ")", key, MatchExtent::kWhole), value);
  return [compiled, otherwise](const std::string& path) {
    for (const auto& [matches, value] : compiled)
      if (matches(path)) return value;
    return otherwise;
  };
}

}  // namespace

Matcher target_matcher(const LoraTargets& targets) {
  const int ways = !targets.names.empty() + !targets.regex.empty() + targets.all_linear;
  APUS_CHECK(ways == 1, ConfigError,
             "an adapter needs target modules: names, one regular expression or 'all-linear'");
  if (!targets.regex.empty()) return regex_matcher(targets.regex, "target_modules", MatchExtent::kWhole);
  if (targets.all_linear) return [](const std::string& path) { return !names_module(path, "lm_head"); };
  return [names = targets.names](const std::string& path) { return named_by(names, path); };
}

Matcher lora_matcher(const LoraConfig& config) {
  const Matcher targets = target_matcher(config.targets);
  const LoraScope& scope = config.scope;
  if (scope.is_open() && config.modules_to_save.empty()) return targets;
  APUS_CHECK(scope.layers.empty() || !config.targets.names.empty(), ConfigError,
             "layers_to_transform needs target modules by name");
  const auto in_layers = [layers = scope.layers, patterns = scope.layers_pattern,
                          whole = config.targets.names](const std::string& path) {
    if (layers.empty() || std::find(whole.begin(), whole.end(), path) != whole.end()) return true;
    return std::find(layers.begin(), layers.end(), layer_of(path, patterns)) != layers.end();
  };
  return [targets, in_layers, excluded = exclusion(config)](const std::string& path) {
    return targets(path) && in_layers(path) && !excluded(path);
  };
}

std::function<LoraSize(const std::string& path)> lora_sizes(const LoraConfig& config) {
  const auto rank_of = pattern_value(config.rank_pattern, "rank_pattern", config.r);
  const auto alpha_of = pattern_value(config.alpha_pattern, "alpha_pattern", config.lora_alpha);
  for (const auto& [pattern, rank] : config.rank_pattern)
    APUS_CHECK(rank >= 1, ConfigError, "rank_pattern: '", pattern, "' has the rank ", rank,
               ", expected at least 1");
  APUS_CHECK(config.r >= 1, ConfigError, "lora_rank is ", config.r, ", expected at least 1");
  return [rank_of, alpha_of, use_rslora = config.use_rslora](const std::string& path) {
    const LoraConfig own{.r = rank_of(path), .lora_alpha = alpha_of(path), .use_rslora = use_rslora};
    return LoraSize{.r = own.r, .alpha = own.lora_alpha, .scaling = own.scaling()};
  };
}

}  // namespace apus::peft
