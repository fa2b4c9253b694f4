#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apus/data/conversation.h"
#include "data/turn_marks.h"

namespace apus::data {

/// A rendered conversation with the renderings that its turns are found by.
struct RenderedTurns {
  /// One assistant turn.
  struct Turn {
    /// Its message.
    size_t message = 0;
    /// The messages before it, with the generation prompt; none where the template refuses.
    std::optional<std::string> before = {};
    /// The messages through it; none where the template refuses.
    std::optional<std::string> through = {};
  };
  /// All messages.
  std::string text;
  /// In order.
  std::vector<Turn> turns;
};

/// Where a turn stands in a text, in bytes.
struct TurnSpan {
  size_t begin = 0;
  size_t end = 0;
  /// Whether a mark had to be searched for.
  bool is_searched = false;
  friend bool operator==(const TurnSpan&, const TurnSpan&) = default;
};

/// Finds every assistant turn in the text: [end of its header, end of its end-of-turn text). Spans ascend and
/// do not overlap.
/// Throws: RowRefused: no_end_of_turn, turn_not_located, ambiguous_turn.
std::vector<TurnSpan> locate_turns(const RenderedTurns& rendered, const Conversation& conversation,
                                   const TurnMarks& marks);

}  // namespace apus::data
