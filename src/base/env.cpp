#include "apus/base/env.h"

#include <unistd.h>

#include <utility>

#include "apus/base/parse_value.h"

namespace apus {

Environment::Environment(Map variables) : variables_(std::move(variables)) {}

Environment Environment::from_process() {
  Environment result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) result.set(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

bool Environment::has(std::string_view name) const {
  return variables_.contains(name);
}

std::optional<std::string> Environment::get(std::string_view name) const {
  const auto found = variables_.find(name);
  if (found == variables_.end()) return std::nullopt;
  return found->second;
}

std::string Environment::get_or(std::string_view name, std::string_view fallback) const {
  return get(name).value_or(std::string(fallback));
}

std::optional<int64_t> Environment::get_int(std::string_view name) const {
  const auto text = get(name);
  if (!text || text->empty()) return std::nullopt;
  return parse_int("environment variable " + std::string(name), *text);
}

std::optional<bool> Environment::get_bool(std::string_view name) const {
  const auto text = get(name);
  if (!text || text->empty()) return std::nullopt;
  return parse_bool("environment variable " + std::string(name), *text);
}

void Environment::set(std::string_view name, std::string_view value) {
  variables_.insert_or_assign(std::string(name), std::string(value));
}

void Environment::unset(std::string_view name) {
  const auto found = variables_.find(name);
  if (found != variables_.end()) variables_.erase(found);
}

std::optional<std::filesystem::path> cache_directory(const Environment& environment) {
  const std::filesystem::path own = environment.get_or("APUS_CACHE_DIR", "");
  if (!own.empty()) return own;
  const std::filesystem::path shared = environment.get_or("XDG_CACHE_HOME", "");
  if (shared.is_absolute()) return shared / "apus";
  const std::filesystem::path home = environment.get_or("HOME", "");
  if (!home.empty()) return home / ".cache" / "apus";
  return std::nullopt;
}

}  // namespace apus
