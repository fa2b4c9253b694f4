#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "apus/data/row_notes.h"

namespace apus::data {

/// Whether a text holds the name of every function that a message calls.
bool holds_calls(std::string_view text, const nlohmann::ordered_json& message);

/// Notes what became of a message's calls in the text that a template made of it.
void note_calls(const nlohmann::ordered_json& message, std::string_view text, RowNotes& notes);

/// Notes whether a rendered conversation names its tools (a list as conversation.h has it, or null).
void note_tools(const nlohmann::ordered_json& tools, std::string_view text, RowNotes& notes);

}  // namespace apus::data
