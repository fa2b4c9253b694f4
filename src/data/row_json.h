#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace apus::data {

/// Throws RowRefused. `kind` is for people, `code` for programs (see RowProblem).
[[noreturn]] void refuse_row(std::string code, std::string kind, std::string detail = {});

/// A row of a file, which must be an object. Throws RowRefused (bad_json).
nlohmann::ordered_json parse_row(std::string_view text);

/// Refuses a row (not_supported) with a key that changes what it means and is not built: pictures, sound, or
/// arguments of the template.
void require_supported_keys(const nlohmann::ordered_json& row);

/// The value of a key; nullptr where it is absent or null.
const nlohmann::ordered_json* find_value(const nlohmann::ordered_json& object, std::string_view key);

/// Takes a key out of an object; null where it is absent.
nlohmann::ordered_json take_value(nlohmann::ordered_json& object, std::string_view key);

/// The channel that a row names (a text, or a whole number as text); "" where it names none. `json` is any of
/// nlohmann's types.
/// Throws:  RowRefused (bad_channel): another type, or more than 100 bytes.
template <typename Json>
std::string channel_of(const Json& row) {
  const auto at = row.find("channel");
  if (at == row.end() || at->is_null()) return {};
  constexpr size_t kMostBytes = 100;
  if (!at->is_string() && !at->is_number_integer())
    refuse_row("bad_channel", "channel is no text", std::string("channel is of type ") + at->type_name());
  std::string name = at->is_string() ? at->template get<std::string>() : at->dump();
  if (name.size() > kMostBytes)
    refuse_row("bad_channel", "channel is too long",
               "it has " + std::to_string(name.size()) + " bytes, at most " + std::to_string(kMostBytes) +
                   " are taken");
  return name;
}

/// "a list", "an object", "a string", "null", ...
std::string type_text(const nlohmann::ordered_json& value);

/// Why an object has no value under a key: "missing key 'x'", or "key 'x' is null".
std::string absence_text(const nlohmann::ordered_json& object, const std::string& key);

/// The keys of an object, "nothing" where there are none.
std::string keys_of(const nlohmann::ordered_json& object);

}  // namespace apus::data
