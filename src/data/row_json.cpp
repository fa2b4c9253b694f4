#include "data/row_json.h"

#include <utility>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/data/rows_report.h"

namespace apus::data {

using Json = nlohmann::ordered_json;

void refuse_row(std::string code, std::string kind, std::string detail) {
  throw RowRefused({std::move(kind), std::move(detail), std::move(code)});
}

Json parse_row(std::string_view text) {
  Json row;
  try {
    row = parse_ordered_json(text, "row");
  } catch (const DataError& error) {
    refuse_row("bad_json", "broken JSON", error.reason());
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

std::string keys_of(const Json& object) {
  std::string list;
  for (const auto& [key, value] : object.items()) list += (list.empty() ? "" : ", ") + key;
  return list.empty() ? "nothing" : list;
}

}  // namespace apus::data
