#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "apus/data/chat_template.h"

namespace apus {
class Clock;
}

namespace apus::data {

/// What a template writes around an assistant's turn.
struct TurnMarks {
  /// What add_generation_prompt appends; may be empty.
  std::string generation_prompt;
  /// What stands before every answer, prompted for or not.
  std::string header;
  /// What ends an answer, without white space at its end; empty: the template marks no end.
  std::string end_of_turn;
};

/// Learns the marks from a conversation of texts that no template knows, without tools.
TurnMarks learn_turn_marks(const ChatTemplate& chat, const nlohmann::ordered_json& kwargs,
                           const Clock* clock);

/// Whether the generation blocks of a template leave out the end of a turn, so that it is never trained.
bool blocks_leave_end_out(const ChatTemplate& chat, const nlohmann::ordered_json& kwargs, const Clock* clock,
                          const std::string& end_of_turn);

}  // namespace apus::data
