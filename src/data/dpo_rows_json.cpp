#include "apus/data/dpo_rows_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "apus/base/json.h"
#include "apus/data/columns.h"
#include "apus/data/conversation.h"
#include "apus/data/row_notes.h"
#include "data/row_json.h"

namespace apus::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, 3> kColumns = {"prompt", "chosen", "rejected"};

bool is_empty_text(const Json* value) {
  return value && value->is_string() && value->get_ref<const std::string&>().empty();
}

/// An answer must end in an assistant message that says something.
void require_answer(const Json& list, const std::string& name) {
  if (list.empty())
    refuse_row("empty_answer", "empty " + name, "nothing is left of it behind the common prompt");
  const Json& last = list.back();
  if (last["role"] != "assistant")
    refuse_row("bad_answer", name + " does not end in an assistant message",
               "its last role is '" + last["role"].get<std::string>() + "'");
  if (is_empty_text(find_value(last, "content")) && !find_value(last, "tool_calls"))
    refuse_row("empty_answer", "empty " + name);
}

/// Every token of an answer counts the same in DPO.
void require_plain_weights(const Conversation& answer, size_t begin, const std::string& name) {
  for (size_t i = begin; i < answer.weights.size(); ++i)
    if (answer.weights[i].is_given && answer.weights[i].value != 1.0f)
      refuse_row("not_supported", "not supported yet", "loss or loss_scale inside " + name);
}

Conversation messages_of(Json& row, const std::string& name) {
  Json list = take_value(row, name);
  if (list.empty()) refuse_row("empty_answer", "empty " + name, "the list has no message");
  return normalized_messages(std::move(list), name);
}

Json answer_of(Json& row, const std::string& name) {
  Conversation answer = messages_of(row, name);
  require_plain_weights(answer, 0, name);
  return std::move(answer.messages);
}

Json part(const Json& list, size_t begin, size_t end) {
  Json result = Json::array();
  for (size_t i = begin; i < end; ++i) result.push_back(list[i]);
  return result;
}

/// Cuts two whole conversations where they part. One that says nothing new loses its last message to the
/// answer, as in TRL.
void split_conversations(const Conversation& chosen, const Conversation& rejected, DpoExample& example) {
  const Json &a = chosen.messages, &b = rejected.messages;
  const size_t shorter = std::min(a.size(), b.size());
  size_t common = 0;
  while (common < shorter && a[common] == b[common]) ++common;
  common = std::min(common, shorter - 1);
  require_plain_weights(chosen, common, "chosen");
  require_plain_weights(rejected, common, "rejected");
  example.prompt = part(a, 0, common);
  example.chosen = part(a, common, a.size());
  example.rejected = part(b, common, b.size());
}

[[noreturn]] void refuse_missing(const Json& row, const std::string& key) {
  refuse_row("unknown_form", absence_text(row, key), "has: " + keys_of(row));
}

void require_texts(const DpoExample& example) {
  if (is_empty_text(&example.chosen)) refuse_row("empty_answer", "empty chosen");
  if (is_empty_text(&example.rejected)) refuse_row("empty_answer", "empty rejected");
}

/// Types that fit together: three strings, three lists, or lists without a prompt of their own.
void require_types(const Json& row) {
  const Json* prompt = find_value(row, "prompt");
  for (const char* name : kColumns) {
    const Json* value = find_value(row, name);
    if (value && !value->is_string() && !value->is_array())
      refuse_row(
          "bad_content", "wrong type",
          std::string(name) + " is " + type_text(*value) + ", expected a string or a list of messages");
  }
  const Json &chosen = *find_value(row, "chosen"), &rejected = *find_value(row, "rejected");
  if (chosen.type() != rejected.type())
    refuse_row("bad_content", "wrong type",
               "chosen is " + type_text(chosen) + " but rejected is " + type_text(rejected) +
                   "; expected strings or lists of messages in both");
  if (!prompt && chosen.is_string()) refuse_missing(row, "prompt");
  if (prompt && prompt->is_array() && chosen.is_string())
    refuse_row("bad_content", "wrong type",
               "prompt is a list but chosen is a string; expected strings or lists of messages in all three");
}

/// Lists without a prompt that is a list, too.
void read_implicit_prompt(Json& row, DpoExample& example) {
  const Json prompt = take_value(row, "prompt");
  const Conversation chosen = messages_of(row, "chosen"), rejected = messages_of(row, "rejected");
  split_conversations(chosen, rejected, example);
  if (!example.prompt.empty()) return;
  if (prompt.is_null())
    refuse_row("unknown_form", "chosen and rejected share no prompt",
               "there is no key 'prompt', and their first messages differ");
  example.prompt = Json::array({Json{{"role", "user"}, {"content", prompt}}});
}

void read_pair(Json& row, DpoExample& example) {
  const auto lacks = [&](const char* name) { return find_value(row, name) == nullptr; };
  if (lacks("prompt") && lacks("chosen") && lacks("rejected"))
    refuse_row("unknown_form", "no preference row",
               "has: " + keys_of(row) +
                   "; expected prompt, chosen and rejected, or messages and rejected_response (--columns "
                   "renames keys)");
  for (const char* name : {"chosen", "rejected"})
    if (lacks(name)) refuse_missing(row, name);
  require_types(row);
  if (row["chosen"].is_string()) {
    example.prompt = take_value(row, "prompt");
    example.chosen = take_value(row, "chosen");
    example.rejected = take_value(row, "rejected");
    return require_texts(example);
  }
  const Json* prompt = find_value(row, "prompt");
  if (!prompt || prompt->is_string()) return read_implicit_prompt(row, example);
  example.prompt = normalized_messages(take_value(row, "prompt"), "prompt").messages;
  example.chosen = answer_of(row, "chosen");
  example.rejected = answer_of(row, "rejected");
}

/// A conversation of any shape whose last message is the chosen answer, and what is rejected in its place.
void read_conversation(Json row, DpoExample& example) {
  const Json response = take_value(row, "rejected_response"), messages = take_value(row, "rejected_messages");
  if (!response.is_null() && !messages.is_null())
    refuse_row("unknown_form", "two rejected answers",
               "rejected_response stands beside rejected_messages; keep one of them");
  if (!response.is_null() && !response.is_string())
    refuse_row("bad_content", "wrong type",
               "rejected_response is " + type_text(response) + ", expected a string");
  Conversation chosen = make_conversation(std::move(row));
  if (chosen.text) refuse_row("unknown_form", "a text has no answer", "expected a conversation");
  require_answer(chosen.messages, "the conversation");
  Conversation rejected;
  if (!messages.is_null()) {
    rejected = normalized_messages(messages, "rejected_messages");
    const Json& first = chosen.messages.front();
    const Json* system = first["role"] == "system" ? find_value(first, "content") : nullptr;
    if (system) set_system(rejected, system->get<std::string>());
  } else {
    if (is_empty_text(&response)) refuse_row("empty_answer", "empty rejected");
    rejected.messages = part(chosen.messages, 0, chosen.messages.size() - 1);
    rejected.messages.push_back(Json{{"role", "assistant"}, {"content", response}});
  }
  split_conversations(chosen, rejected, example);
  if (example.prompt.empty())
    refuse_row("unknown_form", "chosen and rejected share no prompt", "their first messages differ");
  example.tools = std::move(chosen.tools);
}

std::optional<std::string> system_of(const Json& row) {
  const Json* system = find_value(row, "system");
  if (!system) return std::nullopt;
  if (!system->is_string())
    refuse_row("bad_content", "wrong type", "system is " + type_text(*system) + ", expected a string");
  auto text = system->get<std::string>();
  return text.empty() ? std::nullopt : std::optional(std::move(text));
}

std::optional<float> margin_of(const Json& row) {
  const Json* margin = find_value(row, "margin");
  if (!margin) return std::nullopt;
  const double value = margin->is_number() ? margin->get<double>() : std::numeric_limits<double>::infinity();
  if (!(std::abs(value) <= static_cast<double>(std::numeric_limits<float>::max())))
    refuse_row("bad_margin", "margin is no finite number", "margin is " + dump_json(*margin));
  return static_cast<float>(value);
}

DpoExample make_example(Json row) {
  require_supported_keys(row);
  DpoExample example;
  example.margin = margin_of(row);
  const bool is_pair = find_value(row, "chosen") || find_value(row, "rejected") ||
                       !(find_value(row, "rejected_response") || find_value(row, "rejected_messages"));
  if (is_pair) {
    example.tools = normalized_tools(take_value(row, "tools"));
    read_pair(row, example);
    example.system = system_of(row);
  } else {
    read_conversation(std::move(row), example);
  }
  if (!example.is_conversation()) return example;
  require_answer(example.chosen, "chosen");
  require_answer(example.rejected, "rejected");
  const Json& first = example.prompt.front();
  if (example.system && first["role"] == "system")
    refuse_row("two_systems", "two system texts", "the key 'system' and a system message in prompt");
  return example;
}

}  // namespace

DpoExample parse_dpo_example(std::string_view text) {
  return make_example(parse_row(text));
}

DpoExample parse_dpo_example(std::string_view text, const ColumnMap& columns) {
  RowNotes notes;
  return parse_dpo_example(text, columns, notes);
}

DpoExample parse_dpo_example(std::string_view text, const ColumnMap& columns, RowNotes& notes) {
  Json row = parse_row(text);
  notes.renamed = columns.apply(row);
  return make_example(std::move(row));
}

}  // namespace apus::data
