#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "apus/base/api.h"

namespace apus::data {

/// A preference row as it stands in the file, with its shape checked: prompt, chosen and rejected are either
/// all strings, or all lists of messages ({"role", "content", ...}; further keys reach the chat template as
/// they are).
struct APUS_API DpoExample {
  /// What is asked.
  nlohmann::ordered_json prompt;
  /// The preferred answer.
  nlohmann::ordered_json chosen;
  /// The other answer.
  nlohmann::ordered_json rejected;
  /// The row's own system text; none where null or empty.
  std::optional<std::string> system = {};

  /// Whether the row consists of message lists.
  bool is_conversation() const { return prompt.is_array(); }
};

/// Reads one row of a DPO file: {"prompt", "chosen", "rejected"} and optionally "system". Keys that have no
/// meaning for DPO are skipped; keys that have one which this build lacks (tools, margin, another shape of
/// row) are refused by name.
/// Throws:  RowRefused: broken JSON (with the column), missing key, wrong type, empty answer, unknown role,
///          not supported yet.
APUS_API DpoExample parse_dpo_example(std::string_view text);

}  // namespace apus::data
