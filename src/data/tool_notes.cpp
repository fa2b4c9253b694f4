#include "data/tool_notes.h"

#include <algorithm>
#include <string>

#include "apus/base/json.h"
#include "data/row_json.h"

namespace apus::data {
namespace {

using Json = nlohmann::ordered_json;

bool holds(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// A call's or tool's {"function": ...}, or what stands for it.
const Json& function_of(const Json& entry) {
  const Json* function = find_value(entry, "function");
  return function && function->is_object() ? *function : entry;
}

/// Whether a text holds the name of a call or tool; those without one are passed over.
bool holds_name(std::string_view text, const Json& entry) {
  if (!entry.is_object()) return true;
  const Json* name = find_value(function_of(entry), "name");
  return !name || !name->is_string() || holds(text, name->get_ref<const std::string&>());
}

/// Whether a call's arguments are a string of JSON that stands quoted in the text.
bool quotes_arguments(std::string_view text, const Json& call) {
  if (!call.is_object()) return false;
  const Json* arguments = find_value(function_of(call), "arguments");
  if (!arguments || !arguments->is_string()) return false;
  const auto& json = arguments->get_ref<const std::string&>();
  const size_t start = json.find_first_not_of(" \t\r\n");
  const bool is_object = start != std::string::npos && json[start] == '{' && Json::accept(json);
  return is_object && holds(text, dump_json(*arguments));
}

const Json* calls_of(const Json& message) {
  const Json* calls = find_value(message, "tool_calls");
  return calls && calls->is_array() ? calls : nullptr;
}

}  // namespace

bool holds_calls(std::string_view text, const Json& message) {
  const Json* calls = calls_of(message);
  return !calls || std::ranges::all_of(*calls, [&](const Json& call) { return holds_name(text, call); });
}

void note_calls(const Json& message, std::string_view text, RowNotes& notes) {
  const Json* calls = calls_of(message);
  if (!calls) return;
  if (!holds_calls(text, message)) notes.leaves_tools_out = true;
  for (const Json& call : *calls)
    if (quotes_arguments(text, call)) notes.quotes_arguments = true;
}

void note_tools(const Json& tools, std::string_view text, RowNotes& notes) {
  if (!tools.is_array()) return;
  for (const Json& tool : tools)
    if (!holds_name(text, tool)) notes.leaves_tools_out = true;
}

}  // namespace apus::data
