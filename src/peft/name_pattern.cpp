#include "peft/name_pattern.h"

#include <algorithm>
#include <memory>
#include <regex>

#include "apus/base/error.h"

namespace apus::peft::detail {
namespace {

// libstdc++ compiles a regular expression by recursion over it.
constexpr std::size_t kMaxRegexBytes = 4096;

}  // namespace

Matcher regex_matcher(const std::string& pattern, const std::string& key, MatchExtent extent) {
  APUS_CHECK(pattern.size() <= kMaxRegexBytes, ConfigError, key, ": the regular expression has ",
             pattern.size(), " bytes, at most ", kMaxRegexBytes, " are taken");
  try {
    // The breadth-first executor: polynomial in the pattern, where the default one is exponential.
    const auto flags = std::regex::ECMAScript | std::regex_constants::__polynomial;
    auto compiled = std::make_shared<const std::regex>(pattern, flags);
    if (extent == MatchExtent::kAnywhere)
      return [compiled](const std::string& name) { return std::regex_search(name, *compiled); };
    return [compiled](const std::string& name) { return std::regex_match(name, *compiled); };
  } catch (const std::regex_error& error) {
    throw ConfigError(key + ": '" + pattern + "' is not a regular expression that is understood here (" +
                      error.what() + "); back-references and Python's (?P<..>), (?<=..) are not");
  }
}

bool names_module(const std::string& path, const std::string& name) {
  if (!path.ends_with(name)) return false;
  return path.size() == name.size() || path[path.size() - name.size() - 1] == '.';
}

bool is_saved_by(const std::string& path, const std::string& text) {
  for (size_t end = path.find('.');; end = path.find('.', end + 1)) {
    if (path.substr(0, end).ends_with(text)) return true;
    if (end == std::string::npos) return false;
  }
}

bool is_saved(const std::string& path, const std::vector<std::string>& texts) {
  return std::any_of(texts.begin(), texts.end(),
                     [&](const std::string& text) { return is_saved_by(path, text); });
}

}  // namespace apus::peft::detail
