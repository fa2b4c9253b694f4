#include "apus/nn/shard_plan.h"

#include <string_view>

namespace apus::nn {
namespace {

/// Takes the first component off a dotted path.
std::string_view pop_component(std::string_view& path) {
  const size_t dot = path.find('.');
  const std::string_view component = path.substr(0, dot);
  path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  return component;
}

}  // namespace

bool matches_path(std::string_view pattern, std::string_view path) {
  while (!pattern.empty() && !path.empty()) {
    const std::string_view wanted = pop_component(pattern);
    const std::string_view found = pop_component(path);
    if (wanted != "*" && wanted != found) return false;
  }
  return pattern.empty() && path.empty();
}

ShardStyle ShardPlan::style_of(const std::string& path) const {
  for (const ShardRule& rule : rules)
    if (matches_path(rule.pattern, path)) return rule.style;
  return ShardStyle::kReplicate;
}

}  // namespace apus::nn
