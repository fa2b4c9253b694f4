#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"

namespace apus::data {

/// What a row says about the loss of one message.
struct TurnWeight {
  /// What the message counts: 0 for everything but an assistant's turn, there 1 unless the row says
  /// otherwise.
  float value = 0.0f;
  /// Whether the row says so itself, by `loss` or `loss_scale`.
  bool is_given = false;
};

/// A training row as messages, whatever shape it had in its file.
struct APUS_API Conversation {
  /// Objects with role (system, user, assistant or tool), content, and whatever else the row gave them, for
  /// the template. Calls of tools are the `tool_calls` of an assistant's message.
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  /// Descriptions of tools, each {"type", "function"}; null where there are none.
  nlohmann::ordered_json tools = nullptr;
  /// One for each message.
  std::vector<TurnWeight> weights = {};
  /// Which shape the row had: "messages", "sharegpt", "alpaca", "query" or "text".
  std::string form = {};
  /// A text for pre-training; it takes the place of messages and tools, which are empty.
  std::optional<std::string> text = {};
  /// The row's `channel`; empty = none.
  std::string channel = {};

  /// Whether a message is the assistant's.
  bool is_turn(size_t index) const { return messages[index]["role"] == "assistant"; }
};

/// Finds the shape of a row by its keys and makes messages of it.
///
/// Shapes: {"messages"}; ShareGPT {"conversations" or "conversation"} of {"from", "value"} or of {"human",
/// "assistant"}; Alpaca {"instruction", "input", "output"}; {"query", "response"}, the last two also with
/// "history"; {"text"}. Besides them "system" and "tools" (a list, or a JSON string of one). Keys that hold
/// null count as absent; other keys have no meaning and are passed over. "channel" (a text or a whole number)
/// names the part of a mixture that the row belongs to.
/// `loss` and `loss_scale` leave the messages and become weights. Consecutive `tool_call` messages become one
/// assistant turn, or join the one before them; `tool_response` becomes `tool`.
/// Throws:  RowRefused: unknown_form, empty_messages, unknown_role, missing_content, bad_content, bad_text,
///          bad_tool_call, bad_tools, bad_loss, bad_loss_scale, loss_on_non_assistant, loss_conflict,
///          bad_message, bad_history, two_systems, bad_channel, not_supported.
APUS_API Conversation make_conversation(nlohmann::ordered_json row);

/// Puts a system message before the others, if there is none and the text is not empty.
APUS_API void set_system(Conversation& conversation, const std::string& text);

/// Makes a list of messages ready for a template, as make_conversation does: roles and contents are checked,
/// calls joined, loss and loss_scale taken out. `where` names the list in messages ("prompt").
/// Throws:  RowRefused, as above.
APUS_API Conversation normalized_messages(nlohmann::ordered_json list, const std::string& where);

/// Reads a row's descriptions of tools: a list or a JSON string of one, entries wrapped as {"type":
/// "function", "function": entry} where they lack that. Null, "" and the empty list give null.
/// Throws:  RowRefused (bad_tools).
APUS_API nlohmann::ordered_json normalized_tools(const nlohmann::ordered_json& tools);

}  // namespace apus::data
