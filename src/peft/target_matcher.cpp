#include <algorithm>
#include <memory>
#include <regex>
#include <string_view>

#include "apus/base/error.h"
#include "apus/peft/lora_config.h"

namespace apus::peft {
namespace {

// libstdc++ compiles a regular expression by recursion over it.
constexpr std::size_t kMaxRegexBytes = 4096;

using Matcher = std::function<bool(const std::string&)>;

Matcher regex_matcher(const std::string& pattern) {
  APUS_CHECK(pattern.size() <= kMaxRegexBytes, ConfigError, "target_modules: the regular expression has ",
             pattern.size(), " bytes, at most ", kMaxRegexBytes, " are taken");
  try {
    // The breadth-first executor: polynomial in the pattern, where the default one is exponential.
    const auto flags = std::regex::ECMAScript | std::regex_constants::__polynomial;
    auto compiled = std::make_shared<const std::regex>(pattern, flags);
    return [compiled](const std::string& path) { return std::regex_match(path, *compiled); };
  } catch (const std::regex_error& error) {
    throw ConfigError("target_modules: '" + pattern +
                      "' is not a regular expression that is understood here (" + error.what() +
                      "); back-references and Python's (?P<..>), (?<=..) are not");
  }
}

bool names_module(const std::string& path, const std::string& name) {
  if (!path.ends_with(name)) return false;
  return path.size() == name.size() || path[path.size() - name.size() - 1] == '.';
}

}  // namespace

Matcher target_matcher(const LoraTargets& targets) {
  const int ways = !targets.names.empty() + !targets.regex.empty() + targets.all_linear;
  APUS_CHECK(ways == 1, ConfigError,
             "an adapter needs target modules: names, one regular expression or 'all-linear'");
  if (!targets.regex.empty()) return regex_matcher(targets.regex);
  if (targets.all_linear) return [](const std::string& path) { return !names_module(path, "lm_head"); };
  return [names = targets.names](const std::string& path) {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return names_module(path, name); });
  };
}

}  // namespace apus::peft
