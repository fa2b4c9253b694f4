#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "apus/base/api.h"

namespace apus::data {

class ColumnMap;
struct RowNotes;

/// A preference row, whatever shape it had in its file: prompt, chosen and rejected are either all strings,
/// or all lists of messages ({"role", "content", ...}; further keys reach the chat template as they are).
struct APUS_API DpoExample {
  /// What is asked.
  nlohmann::ordered_json prompt = {};
  /// The preferred answer.
  nlohmann::ordered_json chosen = {};
  /// The other answer.
  nlohmann::ordered_json rejected = {};
  /// The row's own system text; none where null or empty, or where it is among the messages already.
  std::optional<std::string> system = {};
  /// Descriptions of tools, as conversation.h has them; null where there are none.
  nlohmann::ordered_json tools = nullptr;
  /// How much better the chosen answer is said to be.
  std::optional<float> margin = {};

  /// Whether the row consists of message lists.
  bool is_conversation() const { return prompt.is_array(); }
};

/// Reads one row of a DPO file. Shapes:
///
/// - {"prompt", "chosen", "rejected"}: all strings, or all lists of messages. Without a prompt, or with one
///   that is a string beside lists, the lists hold whole conversations: what both begin with is the prompt
///   (where they share nothing, the string is asked by the user).
/// - {"messages", "rejected_response"}: the last message, an assistant's, is the chosen answer.
/// - {"messages", "rejected_messages"}: two whole conversations, as above.
///   In both, "messages" may have any other shape of conversation.h; a row with both is refused.
/// Optionally "system", "tools" and "margin". Roles and calls of tools are as in conversation.h; `loss` and
/// `loss_scale` mean nothing in a prompt. Keys that have no meaning for DPO are passed over.
/// Throws:  RowRefused: bad_json (with the column), unknown_form, empty_answer, bad_answer, bad_margin,
///          not_supported, and as make_conversation.
/// Source:  TRL 1.16, extraction of implicit prompts.
APUS_API DpoExample parse_dpo_example(std::string_view text);

/// The same after renaming the row's keys.
APUS_API DpoExample parse_dpo_example(std::string_view text, const ColumnMap& columns);

/// The same; notes the keys that were renamed.
APUS_API DpoExample parse_dpo_example(std::string_view text, const ColumnMap& columns, RowNotes& notes);

}  // namespace apus::data
