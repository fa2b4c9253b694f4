#include "apus/cli/flag_values.h"

#include <utility>

#include "apus/base/error.h"
#include "apus/base/parse_value.h"

namespace apus::cli {
namespace {

void append_parts(std::string_view text, std::vector<std::string>& out) {
  while (!text.empty()) {
    const size_t comma = text.find(',');
    if (comma != 0) out.emplace_back(text.substr(0, comma));
    text = comma == text.npos ? std::string_view() : text.substr(comma + 1);
  }
}

}  // namespace

std::string FlagValue::text() const {
  std::string joined;
  for (const std::string& word : words) joined += (joined.empty() ? "" : " ") + word;
  return joined;
}

int64_t FlagValue::integer() const {
  return parse_int(shown, text());
}

double FlagValue::number() const {
  return parse_double(shown, text());
}

bool FlagValue::boolean() const {
  return parse_bool(shown, text());
}

std::vector<std::string> FlagValue::list(FlagKind kind) const {
  if (kind == FlagKind::kList) return split_list(text());
  std::vector<std::string> parts;
  for (const std::string& word : words) append_parts(word, parts);
  return parts;
}

const FlagValue* FlagValues::find(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

void FlagValues::add(const std::string& name, FlagValue value) {
  const std::string shown = value.shown;
  const auto [place, is_new] = values_.emplace(name, std::move(value));
  if (is_new) return;
  const std::string& first = place->second.shown;
  throw ConfigError(first == shown ? shown + " is given twice; give it once"
                                   : shown + " and " + first + " are the same flag; give one of them");
}

}  // namespace apus::cli
