#include "data/row_json.h"

#include <utility>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/data/rows_report.h"

namespace apus::data {

using Json = nlohmann::ordered_json;

namespace {

/// A number beyond every double is told in our words; other reasons as they are.
std::string json_reason(const std::string& reason) {
  constexpr std::string_view kOverflow = "number overflow parsing '";
  const size_t at = reason.find(kOverflow);
  if (at == std::string::npos) return reason;
  const size_t begin = at + kOverflow.size();
  return "the number " + reason.substr(begin, reason.find('\'', begin) - begin) +
         " is too large; numbers must be below 1.8e308";
}

/// For a line with which an object over several lines begins.
std::string layout_hint(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
  const bool begins = first != std::string_view::npos && text[first] == '{';
  if (!begins || std::string_view("{[,").find(text[last]) == std::string_view::npos) return "";
  return "; expected one object a line, or an array of objects";
}

}  // namespace

void refuse_row(std::string code, std::string kind, std::string detail) {
  throw RowRefused({std::move(kind), std::move(detail), std::move(code)});
}

Json parse_row(std::string_view text) {
  Json row;
  try {
    row = parse_ordered_json(text, "row");
  } catch (const DataError& error) {
    refuse_row("bad_json", "broken JSON", json_reason(error.reason()) + layout_hint(text));
  }
  if (!row.is_object())
    refuse_row("bad_json", "no JSON object", "the row is " + type_text(row) + ", expected an object");
  return row;
}

void require_supported_keys(const Json& row) {
  for (const char* key : {"images", "videos", "audios", "chat_template_kwargs"}) {
    const Json* value = find_value(row, key);
    if (value && !value->empty())
      refuse_row("not_supported", "not supported yet", std::string("rows with key '") + key + "'");
  }
}

const Json* find_value(const Json& object, std::string_view key) {
  const auto at = object.find(key);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

Json take_value(Json& object, std::string_view key) {
  const auto at = object.find(key);
  if (at == object.end()) return nullptr;
  Json value = std::move(*at);
  object.erase(at);
  return value;
}

std::string type_text(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_array()) return "a list";
  return (value.is_object() ? "an " : "a ") + std::string(value.type_name());
}

std::string absence_text(const Json& object, const std::string& key) {
  return object.contains(key) ? "key '" + key + "' is null" : "missing key '" + key + "'";
}

std::string keys_of(const Json& object) {
  std::string list;
  for (const auto& [key, value] : object.items()) list += (list.empty() ? "" : ", ") + key;
  return list.empty() ? "nothing" : list;
}

}  // namespace apus::data
