#include "apus/data/columns.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "data/row_json.h"

namespace apus::data {
namespace {

using Json = nlohmann::json;

Json parse_flag(std::string_view text, const std::string& flag) {
  try {
    return parse_json_settings(text, flag);
  } catch (const DataError& error) {
    throw ConfigError(flag + ": " + error.reason() +
                      R"(; expected an object such as {"question": "query", "answer": "response"})");
  }
}

}  // namespace

ColumnMap ColumnMap::parse(std::string_view text, const std::string& flag) {
  const Json object = parse_flag(text, flag);
  APUS_CHECK(object.is_object(), ConfigError, flag, " is ", object.type_name(),
             ", expected an object such as {\"question\": \"query\", \"answer\": \"response\"}");
  ColumnMap map;
  map.flag_ = flag;
  for (const auto& [theirs, ours] : object.items()) {
    APUS_CHECK(ours.is_string(), ConfigError, flag, ": key '", theirs, "' is ", ours.type_name(),
               ", expected the name of a column");
    const auto name = ours.get<std::string>();
    APUS_CHECK(!theirs.empty() && !name.empty(), ConfigError, flag, ": key '", theirs, "' -> '", name,
               "' has an empty name");
    for (const auto& [other, taken] : map.names_)
      APUS_CHECK(taken != name, ConfigError, flag, ": keys '", other, "' and '", theirs, "' both become '",
                 name, "'; each column can stand for one key");
    map.names_.emplace_back(theirs, name);
  }
  return map;
}

std::vector<std::string> ColumnMap::apply(nlohmann::ordered_json& row) const {
  if (names_.empty()) return {};
  std::vector<std::string> found;
  const auto ours_of = [&](const std::string& key) {
    const auto at = std::ranges::find(names_, key, &std::pair<std::string, std::string>::first);
    if (at == names_.end()) return key;
    found.push_back(key);
    return at->second;
  };
  auto renamed = nlohmann::ordered_json::object();
  for (auto& [key, value] : row.items()) {
    const std::string name = ours_of(key);
    const bool is_taken = find_value(renamed, name) != nullptr;
    if (is_taken && value.is_null()) continue;  // null stands for absent, as everywhere in rows
    if (is_taken)
      refuse_row("column_collision", "a renamed column meets a key that is there already",
                 flag_ + " makes '" + name + "' of a key, and the row has both; its keys: " + keys_of(row));
    renamed[name] = std::move(value);
  }
  row = std::move(renamed);
  return found;
}

std::vector<std::string> ColumnMap::keys() const {
  std::vector<std::string> keys;
  for (const auto& [theirs, ours] : names_) keys.push_back(theirs);
  return keys;
}

std::string ColumnMap::inversion_hint(const nlohmann::ordered_json& row) const {
  bool has_ours = false;
  Json inverted = Json::object();
  for (const auto& [theirs, ours] : names_) {
    if (row.contains(theirs)) return "";
    has_ours = has_ours || row.contains(ours);
    inverted[ours] = theirs;
  }
  if (!has_ours) return "";
  return flag_ + " is the wrong way round: it maps the file's key to our key, so give " + dump_json(inverted);
}

std::string ColumnMap::text() const {
  if (names_.empty()) return "";
  Json object = Json::object();
  for (const auto& [theirs, ours] : names_) object[theirs] = ours;
  return dump_json(object);
}

}  // namespace apus::data
