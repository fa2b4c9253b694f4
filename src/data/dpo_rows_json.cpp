#include "apus/data/dpo_rows_json.h"

#include <array>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/data/rows_report.h"

namespace apus::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 3> kColumns = {"prompt", "chosen", "rejected"};
/// Keys of the row shapes that are read elsewhere or later.
constexpr std::array<std::string_view, 11> kOtherShapes = {
    "messages", "rejected_response", "rejected_messages", "conversations", "instruction", "input", "output",
    "query",    "response",          "history",           "text"};
/// Keys that change what a preference row means.
constexpr std::array<std::string_view, 3> kLater = {"tools", "margin", "chat_template_kwargs"};

[[noreturn]] void refuse(std::string kind, std::string detail = {}) {
  throw RowRefused({std::move(kind), std::move(detail)});
}

std::string type_text(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_array()) return "a list";
  return (value.is_object() ? "an " : "a ") + std::string(value.type_name());
}

/// The value of a key; nullptr where it is absent or null.
const Json* find(const Json& row, std::string_view key) {
  const auto at = row.find(key);
  return at == row.end() || at->is_null() ? nullptr : &*at;
}

std::string keys_of(const Json& row) {
  std::string list;
  for (const auto& [key, value] : row.items()) list += (list.empty() ? "" : ", ") + key;
  return list.empty() ? "nothing" : list;
}

/// The keys of `names` that the row has, quoted.
template <size_t n>
std::string present_keys(const Json& row, const std::array<std::string_view, n>& names) {
  std::string list;
  for (const std::string_view name : names) {
    const Json* value = find(row, name);
    if (value && !(value->is_array() && value->empty()))
      list += (list.empty() ? "'" : ", '") + std::string(name) + "'";
  }
  return list;
}

Json parse_object(std::string_view text) {
  Json row;
  try {
    row = parse_ordered_json(text, "row");
  } catch (const DataError& error) {
    refuse("broken JSON", error.reason());
  }
  if (!row.is_object()) refuse("wrong type", "the row is " + type_text(row) + ", expected an object");
  return row;
}

void require_preference_keys(const Json& row) {
  if (!find(row, "chosen") && !find(row, "rejected")) {
    const std::string others = present_keys(row, kOtherShapes);
    if (!others.empty())
      refuse("not supported yet", "rows of keys " + others + "; use 'prompt', 'chosen', 'rejected'");
  }
  for (const std::string_view key : kColumns)
    if (!find(row, key)) refuse("missing key '" + std::string(key) + "'", "has: " + keys_of(row));
  const std::string later = present_keys(row, kLater);
  if (!later.empty()) refuse("not supported yet", "preference rows with key " + later);
}

void require_role(const Json& message, const std::string& where) {
  const Json* role = find(message, "role");
  if (!role) refuse("missing key 'role'", where + " has: " + keys_of(message));
  if (!role->is_string())
    refuse("wrong type", where + ".role is " + type_text(*role) + ", expected a string");
  const auto& name = role->get_ref<const std::string&>();
  if (name == "tool_call" || name == "tool_response")
    refuse("not supported yet", "role '" + name + "' in " + where);
  if (name != "system" && name != "user" && name != "assistant" && name != "tool")
    refuse("unknown role", "'" + name + "' in " + where + "; expected system, user, assistant or tool");
}

void require_message(const Json& message, const std::string& where) {
  if (!message.is_object())
    refuse("wrong type", where + " is " + type_text(message) + ", expected a message {role, content}");
  require_role(message, where);
  const Json* content = find(message, "content");
  if (!content) {
    if (find(message, "tool_calls")) return;
    refuse("missing key 'content'", where + " has: " + keys_of(message));
  }
  if (content->is_array()) refuse("not supported yet", where + ".content is a list of parts; use one string");
  if (!content->is_string())
    refuse("wrong type", where + ".content is " + type_text(*content) + ", expected a string");
}

/// Checks a list of messages; an answer must end in an assistant message that says something.
void require_messages(const Json& list, const std::string& name) {
  if (list.empty()) refuse("empty " + name, "the list has no message");
  for (size_t i = 0; i < list.size(); ++i) require_message(list[i], name + "[" + std::to_string(i) + "]");
  if (name == "prompt") return;
  const Json& last = list.back();
  if (last["role"] != "assistant")
    refuse(name + " does not end in an assistant message",
           "its last role is '" + last["role"].get<std::string>() + "'");
  const Json* content = find(last, "content");
  if (content && content->get_ref<const std::string&>().empty() && !find(last, "tool_calls"))
    refuse("empty " + name);
}

void require_column(const Json& value, const std::string& name, const Json& prompt) {
  if (!value.is_string() && !value.is_array())
    refuse("wrong type", name + " is " + type_text(value) + ", expected a string or a list of messages");
  if (value.type() != prompt.type())
    refuse("wrong type", "prompt is " + type_text(prompt) + " but " + name + " is " + type_text(value) +
                             "; expected strings or lists of messages in all three");
  if (value.is_array()) return require_messages(value, name);
  if (name != "prompt" && value.get_ref<const std::string&>().empty()) refuse("empty " + name);
}

std::optional<std::string> system_of(const Json& row) {
  const Json* system = find(row, "system");
  if (!system) return std::nullopt;
  if (!system->is_string()) refuse("wrong type", "system is " + type_text(*system) + ", expected a string");
  auto text = system->get<std::string>();
  return text.empty() ? std::nullopt : std::optional(std::move(text));
}

}  // namespace

DpoExample parse_dpo_example(std::string_view text) {
  Json row = parse_object(text);
  require_preference_keys(row);
  for (const std::string_view key : kColumns) require_column(row[key], std::string(key), row["prompt"]);
  DpoExample example{std::move(row["prompt"]), std::move(row["chosen"]), std::move(row["rejected"]),
                     system_of(row)};
  if (example.system && example.is_conversation() && example.prompt.front()["role"] == "system")
    refuse("two system texts", "the key 'system' and a system message in prompt");
  return example;
}

}  // namespace apus::data
