#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/data/conversation.h"
#include "data/row_json.h"

namespace apus::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 6> kRoles = {"system", "user",      "assistant",
                                                    "tool",   "tool_call", "tool_response"};
constexpr const char* kCallShape = R"(expected JSON {"name": string, "arguments": object})";

/// A message on its way: its role as the row spells it, and what it weighs.
struct Piece {
  Json message;
  std::string role;
  TurnWeight weight;
};

std::string role_of(const Json& message, const std::string& where) {
  if (!message.is_object())
    refuse_row("bad_message", "no message",
               where + " is " + type_text(message) + ", expected a message {role, content}");
  const Json* role = find_value(message, "role");
  if (!role) refuse_row("unknown_role", absence_text(message, "role"), where + " has: " + keys_of(message));
  if (!role->is_string())
    refuse_row("unknown_role", "unknown role",
               where + ".role is " + type_text(*role) + ", expected a string");
  const auto& name = role->get_ref<const std::string&>();
  for (const std::string_view known : kRoles)
    if (name == known) return name;
  refuse_row(
      "unknown_role", "unknown role",
      "'" + name + "' in " + where + "; expected system, user, assistant, tool, tool_call or tool_response");
}

bool has_calls(const Json& message) {
  const Json* calls = find_value(message, "tool_calls");
  return calls && !calls->empty();
}

void require_content(const Json& message, const std::string& where) {
  const Json* content = find_value(message, "content");
  if (!content) {
    if (has_calls(message)) return;
    refuse_row("missing_content", absence_text(message, "content"), where + " has: " + keys_of(message));
  }
  if (content->is_array())
    refuse_row("bad_content", "wrong type",
               where + ".content is a list of parts; only one string is supported");
  if (!content->is_string())
    refuse_row("bad_content", "wrong type",
               where + ".content is " + type_text(*content) + ", expected a string");
}

float scale_of(const Json& scale, const std::string& where) {
  const double value = scale.is_number() ? scale.get<double>() : -1.0;
  if (value >= 0.0 && value <= static_cast<double>(std::numeric_limits<float>::max()))
    return static_cast<float>(value);
  refuse_row("bad_loss_scale", "loss_scale is no number of 0 or more", where + ": " + dump_json(scale));
}

/// Takes loss and loss_scale out of a message.
TurnWeight take_weight(Json& message, bool is_turn, const std::string& where) {
  const Json loss = take_value(message, "loss");
  const Json scale = take_value(message, "loss_scale");
  if (!loss.is_null() && !loss.is_boolean())
    refuse_row("bad_loss", "loss is neither true nor false", where + ": " + dump_json(loss));
  const float scaled = scale.is_null() ? 1.0f : scale_of(scale, where);
  const bool is_off = loss.is_boolean() && !loss.get<bool>();
  if (is_turn) return {is_off ? 0.0f : scaled, !loss.is_null() || !scale.is_null()};
  const bool asks = (loss.is_boolean() && !is_off) || (!scale.is_null() && scaled != 0.0f);
  if (asks)
    refuse_row("loss_on_non_assistant", "loss on a message that is not the assistant's",
               where + "; only the assistant's messages can be trained");
  return {};
}

/// The entry of `tool_calls` that a tool_call message stands for.
Json call_of(const Json& message, const std::string& where) {
  const Json* content = find_value(message, "content");
  const auto refuse = [&](const std::string& why) {
    refuse_row("bad_tool_call", "a tool_call that is no call", where + ": " + why + "; " + kCallShape);
  };
  if (!content) refuse("it has no content");
  Json call;
  try {
    call = parse_ordered_json(content->get_ref<const std::string&>(), where);
  } catch (const DataError& error) {
    refuse(error.reason());
  }
  if (!call.is_object()) refuse("the content is " + type_text(call));
  const Json* name = find_value(call, "name");
  const Json* arguments = find_value(call, "arguments");
  if (!name || !name->is_string()) refuse("'name' is no string");
  if (!arguments || !arguments->is_object()) refuse("'arguments' is no object");
  return Json{{"type", "function"}, {"function", Json{{"name", *name}, {"arguments", *arguments}}}};
}

void append_call(Json& turn, Json call) {
  Json& calls = turn["tool_calls"];
  if (!calls.is_array()) calls = Json::array();
  calls.push_back(std::move(call));
}

void join_call(Conversation& conversation, Piece piece, const std::string& where) {
  Json call = call_of(piece.message, where);
  const bool joins = !conversation.messages.empty() && conversation.is_turn(conversation.messages.size() - 1);
  if (!joins) {
    piece.message["role"] = "assistant";
    piece.message["content"] = "";
    append_call(piece.message, std::move(call));
    conversation.messages.push_back(std::move(piece.message));
    conversation.weights.push_back(piece.weight);
    return;
  }
  TurnWeight& weight = conversation.weights.back();
  if (weight.value != piece.weight.value)
    refuse_row("loss_conflict", "messages of one turn weigh differently",
               detail::concat(where, " counts ", piece.weight.value, ", the turn that it joins ",
                              weight.value, "; give both the same loss and loss_scale"));
  weight.is_given = weight.is_given || piece.weight.is_given;
  append_call(conversation.messages.back(), std::move(call));
}

Json wrapped_tool(const Json& entry, size_t index) {
  if (!entry.is_object())
    refuse_row("bad_tools", "tools that cannot be read",
               detail::concat("tools[", index, "] is ", type_text(entry), ", expected an object"));
  if (find_value(entry, "function")) return entry;
  return Json{{"type", "function"}, {"function", entry}};
}

Json parse_tools(const std::string& text) {
  try {
    return parse_ordered_json(text, "tools");
  } catch (const DataError& error) {
    refuse_row("bad_tools", "tools that cannot be read", error.reason());
  }
}

}  // namespace

Conversation normalized_messages(Json list, const std::string& where) {
  if (!list.is_array())
    refuse_row("empty_messages", "no list of messages",
               where + " is " + type_text(list) + ", expected a list of messages");
  if (list.empty()) refuse_row("empty_messages", "empty " + where, "the list has no message");
  Conversation conversation;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string place = where + "[" + std::to_string(i) + "]";
    Piece piece{.message = std::move(list[i]), .role = {}, .weight = {}};
    piece.role = role_of(piece.message, place);
    require_content(piece.message, place);
    const bool is_call = piece.role == "tool_call";
    piece.weight = take_weight(piece.message, is_call || piece.role == "assistant", place);
    if (is_call) {
      join_call(conversation, std::move(piece), place);
      continue;
    }
    if (piece.role == "tool_response") piece.message["role"] = "tool";
    conversation.messages.push_back(std::move(piece.message));
    conversation.weights.push_back(piece.weight);
  }
  return conversation;
}

Json normalized_tools(const Json& tools) {
  if (tools.is_null()) return nullptr;
  if (tools.is_string() && tools.get_ref<const std::string&>().empty()) return nullptr;
  const Json list = tools.is_string() ? parse_tools(tools.get_ref<const std::string&>()) : tools;
  if (list.is_null()) return nullptr;
  if (!list.is_array())
    refuse_row("bad_tools", "tools that cannot be read",
               "tools is " + type_text(list) + ", expected a list, or a JSON string of one");
  Json wrapped = Json::array();
  for (const Json& entry : list) wrapped.push_back(wrapped_tool(entry, wrapped.size()));
  return wrapped.empty() ? Json(nullptr) : wrapped;
}

}  // namespace apus::data
