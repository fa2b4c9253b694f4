#include "apus/data/conversation.h"

#include <array>
#include <string_view>
#include <utility>

#include "data/row_json.h"

namespace apus::data {
namespace {

using Json = nlohmann::ordered_json;

/// A ShareGPT speaker and the role that it stands for.
struct Speaker {
  std::string_view from;
  const char* role;
};

constexpr std::array<Speaker, 12> kSpeakers = {{{"human", "user"},
                                                {"user", "user"},
                                                {"gpt", "assistant"},
                                                {"assistant", "assistant"},
                                                {"bot", "assistant"},
                                                {"function_call", "tool_call"},
                                                {"tool_call", "tool_call"},
                                                {"observation", "tool"},
                                                {"function_response", "tool"},
                                                {"tool_response", "tool"},
                                                {"tool", "tool"},
                                                {"system", "system"}}};

Json message(const char* role, Json content) {
  return Json{{"role", role}, {"content", std::move(content)}};
}

/// The value under either key, taken out; null where there is neither.
Json take_either(Json& object, std::string_view first, std::string_view second) {
  Json value = take_value(object, first);
  return value.is_null() ? take_value(object, second) : value;
}

std::string role_of_speaker(const Json& from, const std::string& where) {
  if (!from.is_string())
    refuse_row("unknown_role", "unknown role", where + ".from is " + type_text(from) + ", expected a string");
  const auto& name = from.get_ref<const std::string&>();
  for (const Speaker& speaker : kSpeakers)
    if (name == speaker.from) return speaker.role;
  refuse_row("unknown_role", "unknown role",
             "'" + name + "' in " + where +
                 "; expected human, gpt, system, function_call, observation or one of their other names");
}

/// Refuses an entry that lacks speaker or text, under its own names for them.
void require_entry(const Json& entry, const std::string& where) {
  const auto lacks = [&](const char* key) { return find_value(entry, key) == nullptr; };
  if (lacks("from") && lacks("role"))
    refuse_row("unknown_role", absence_text(entry, "from"), where + " has: " + keys_of(entry));
  if (lacks("value") && lacks("content") && lacks("tool_calls"))
    refuse_row("missing_content", absence_text(entry, "value"), where + " has: " + keys_of(entry));
  const Json* value = find_value(entry, "value");
  if (value && !value->is_string())
    refuse_row("bad_content", "wrong type", where + ".value is " + type_text(*value) + ", expected a string");
}

/// {"from", "value"} as a message; further keys stay.
Json message_of_entry(Json entry, const std::string& where) {
  require_entry(entry, where);
  const std::string role = role_of_speaker(take_either(entry, "from", "role"), where);
  Json result = message(role.c_str(), take_either(entry, "value", "content"));
  for (auto& [key, value] : entry.items())
    if (!result.contains(key)) result[key] = std::move(value);
  return result;
}

Json messages_of_entries(Json entries, const std::string& name) {
  if (!entries.is_array())
    refuse_row("unknown_form", "no known shape", name + " is " + type_text(entries) + ", expected a list");
  Json messages = Json::array();
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string where = name + "[" + std::to_string(i) + "]";
    Json& entry = entries[i];
    if (!entry.is_object())
      refuse_row("bad_message", "no message", where + " is " + type_text(entry) + ", expected {from, value}");
    if (find_value(entry, "from") || find_value(entry, "role") || !find_value(entry, "human")) {
      messages.push_back(message_of_entry(std::move(entry), where));
      continue;
    }
    messages.push_back(message("user", take_value(entry, "human")));
    messages.push_back(message("assistant", take_value(entry, "assistant")));
  }
  return messages;
}

/// A text that must be there, under the row's own name for it.
Json required_text(const Json& row, const std::string& key) {
  const Json* value = find_value(row, key);
  if (!value) refuse_row("missing_content", absence_text(row, key), "has: " + keys_of(row));
  if (!value->is_string())
    refuse_row("bad_content", "wrong type", key + " is " + type_text(*value) + ", expected a string");
  return *value;
}

/// A text of the history.
const Json& history_text(const Json& text, const std::string& where) {
  const std::string detail = where + " is " + type_text(text) + ", expected a string";
  if (text.is_null()) refuse_row("missing_content", "history that cannot be read", detail);
  if (!text.is_string()) refuse_row("bad_content", "wrong type", detail);
  return text;
}

void append_history(const Json& row, Json& messages) {
  const Json* history = find_value(row, "history");
  if (!history) return;
  const auto refuse = [](const std::string& what) {
    refuse_row("bad_history", "history that cannot be read", what + ", expected [[user, assistant], ...]");
  };
  if (!history->is_array()) refuse("history is " + type_text(*history));
  for (size_t i = 0; i < history->size(); ++i) {
    const Json& pair = (*history)[i];
    const std::string where = "history[" + std::to_string(i) + "]";
    if (!pair.is_array()) refuse(where + " is " + type_text(pair));
    if (pair.size() != 2) refuse(where + " is a list of " + std::to_string(pair.size()));
    messages.push_back(message("user", history_text(pair[0], where + "[0]")));
    messages.push_back(message("assistant", history_text(pair[1], where + "[1]")));
  }
}

std::string text_of(const Json& row, std::string_view key) {
  const Json* value = find_value(row, key);
  if (!value) return "";
  if (!value->is_string())
    refuse_row("bad_content", "wrong type",
               std::string(key) + " is " + type_text(*value) + ", expected a string");
  return value->get<std::string>();
}

Json messages_of_alpaca(const Json& row) {
  const std::string instruction = text_of(row, "instruction"), input = text_of(row, "input");
  Json messages = Json::array();
  append_history(row, messages);
  const char* between = instruction.empty() || input.empty() ? "" : "\n";
  messages.push_back(message("user", instruction + between + input));
  messages.push_back(message("assistant", required_text(row, "output")));
  return messages;
}

Json messages_of_query(const Json& row) {
  Json messages = Json::array();
  append_history(row, messages);
  messages.push_back(message("user", required_text(row, "query")));
  messages.push_back(message("assistant", required_text(row, "response")));
  return messages;
}

bool has(const Json& row, std::string_view key) {
  return find_value(row, key) != nullptr;
}

/// The shape of a row, by the keys that it has.
std::string form_of(const Json& row) {
  if (has(row, "messages")) return "messages";
  if (has(row, "conversations") || has(row, "conversation")) return "sharegpt";
  if (has(row, "instruction") || has(row, "output")) return "alpaca";
  if (has(row, "query") || has(row, "response")) return "query";
  if (has(row, "text")) return "text";
  if (row.contains("text")) refuse_row("bad_text", "text is no string", "it is null");
  for (const char* list : {"messages", "conversations", "conversation"})
    if (row.contains(list)) refuse_row("empty_messages", std::string(list) + " is null", "expected a list");
  refuse_row("unknown_form", "no known shape",
             "has: " + keys_of(row) +
                 "; expected messages, conversations, instruction and output, query and response, or text "
                 "(--columns renames keys)");
}

Conversation conversation_of(Json& row, const std::string& form) {
  if (form == "messages") return normalized_messages(take_value(row, "messages"), "messages");
  if (form == "alpaca") return normalized_messages(messages_of_alpaca(row), "messages");
  if (form == "query") return normalized_messages(messages_of_query(row), "messages");
  const std::string name = has(row, "conversations") ? "conversations" : "conversation";
  return normalized_messages(messages_of_entries(take_value(row, name), name), name);
}

void add_system_of(const Json& row, Conversation& conversation) {
  const std::string text = text_of(row, "system");
  if (text.empty()) return;
  const Json& first = conversation.messages.front();
  const Json* content = find_value(first, "content");
  if (first["role"] == "system" && (!content || *content != text))
    refuse_row("two_systems", "two system texts", "the key 'system' and a system message");
  set_system(conversation, text);
}

}  // namespace

void set_system(Conversation& conversation, const std::string& text) {
  Json& messages = conversation.messages;
  if (text.empty() || messages.empty() || messages.front()["role"] == "system") return;
  messages.insert(messages.begin(), message("system", text));
  conversation.weights.insert(conversation.weights.begin(), TurnWeight{});
}

Conversation make_conversation(Json row) {
  require_supported_keys(row);
  const std::string form = form_of(row);
  std::string channel = channel_of(row);
  Conversation conversation;
  if (form == "text") {
    const Json text = take_value(row, "text");
    if (!text.is_string())
      refuse_row("bad_text", "text is no string", "text is " + type_text(text) + ", expected a string");
    conversation.text = text.get<std::string>();
  } else {
    conversation = conversation_of(row, form);
    add_system_of(row, conversation);
    conversation.tools = normalized_tools(take_value(row, "tools"));
  }
  conversation.form = form;
  conversation.channel = std::move(channel);
  return conversation;
}

}  // namespace apus::data
