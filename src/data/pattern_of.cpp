#include "data/pattern_of.h"

#include "apus/base/error.h"
#include "apus/base/unicode.h"
#include "data/pretokenize_regex.h"

namespace apus::data {

PatternFinder pattern_of(const JsonView& component) {
  const JsonView pattern = component.object("pattern");
  const auto literal = pattern.find<std::string>("String");
  if (literal && !literal->empty()) return find_literal(*literal);
  // An empty string is found between all characters, as an empty regular expression is.
  return find_regex(literal ? "" : pattern.require<std::string>("Regex"), component.source());
}

std::string character_of(const JsonView& component, const std::string& key) {
  const auto text = component.require<std::string>(key);
  if (utf8_length(text) != 1)
    throw DataError(component.source(), 0,
                    component.path_of(key) + " is '" + text + "', expected one character");
  return text;
}

MetaspaceOptions metaspace_options(const JsonView& component) {
  MetaspaceOptions options{.replacement = character_of(component, "replacement")};
  const auto scheme = component.get_or<std::string>("prepend_scheme", "always");
  if (scheme == "never")
    options.prepend = MetaspacePrepend::kNever;
  else if (scheme == "first")
    options.prepend = MetaspacePrepend::kFirst;
  else if (scheme != "always")
    throw DataError(
        component.source(), 0,
        component.path_of("prepend_scheme") + " is '" + scheme + "', expected always, first or never");
  if (!component.get_or("add_prefix_space", true) && options.prepend != MetaspacePrepend::kNever)
    throw DataError(component.source(), 0,
                    component.path_of("add_prefix_space") + " is false, but prepend_scheme is " + scheme);
  options.split = component.get_or("split", true);
  return options;
}

}  // namespace apus::data
