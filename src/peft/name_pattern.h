#pragma once

#include <functional>
#include <string>
#include <vector>

namespace apus::peft::detail {

/// A predicate on names.
using Matcher = std::function<bool(const std::string&)>;

/// Where a regular expression must fit.
enum class MatchExtent {
  kWhole,     ///< the whole name
  kAnywhere,  ///< some part of it
};

/// A regular expression from an untrusted place, compiled; `key` names the setting in messages.
/// Throws:  ConfigError if it is too long or cannot be compiled.
Matcher regex_matcher(const std::string& pattern, const std::string& key, MatchExtent extent);

/// Whether a module's path is the name or ends in "." + name.
bool names_module(const std::string& path, const std::string& name);

/// Whether a module is, or lies below, one whose path ends in the text: PEFT's rule for modules_to_save.
bool is_saved_by(const std::string& path, const std::string& text);

/// The same for any of the texts.
bool is_saved(const std::string& path, const std::vector<std::string>& texts);

}  // namespace apus::peft::detail
