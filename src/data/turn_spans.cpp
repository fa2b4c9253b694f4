#include "data/turn_spans.h"

#include <algorithm>

#include "data/jinja_unicode.h"
#include "data/row_json.h"
#include "data/tool_notes.h"

namespace apus::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kThinkEnd = "</think>";

std::string_view without_end_space(std::string_view text) {
  return jinja::strip(text, jinja::Side::kRight);
}

/// Whether a text stands in a value, in any string inside it.
bool holds(const Json& value, std::string_view mark) {
  if (value.is_string()) return value.get_ref<const std::string&>().find(mark) != std::string::npos;
  if (value.is_array())
    return std::ranges::any_of(value, [&](const Json& item) { return holds(item, mark); });
  if (!value.is_object()) return false;
  for (const auto& [key, item] : value.items())
    if (key.find(mark) != std::string::npos || holds(item, mark)) return true;
  return false;
}

/// Whether what a row says could be taken for a mark of the template.
bool row_holds(const Conversation& conversation, std::string_view mark) {
  if (mark.empty()) return true;  // nothing to tell a turn by
  if (holds(conversation.tools, mark)) return true;
  for (const Json& message : conversation.messages)
    for (const char* key : {"content", "reasoning_content", "thinking", "tool_calls"}) {
      const Json* value = find_value(message, key);
      if (value && holds(*value, mark)) return true;
    }
  return false;
}

/// Whether a span holds the content of its message, or what of it stands behind its thoughts.
bool span_holds_content(std::string_view span, const Json& message) {
  const Json* content = find_value(message, "content");
  if (!content || !content->is_string()) return true;
  const auto& text = content->get_ref<const std::string&>();
  if (span.find(jinja::strip(text, jinja::Side::kBoth)) != std::string_view::npos) return true;
  const size_t thoughts = text.rfind(kThinkEnd);
  if (thoughts == std::string::npos) return false;
  const auto rest = std::string_view(text).substr(thoughts + kThinkEnd.size());
  return span.find(jinja::strip(rest, jinja::Side::kBoth)) != std::string_view::npos;
}

/// Finds one turn after another in a text.
class TurnLocator {
 public:
  TurnLocator(const RenderedTurns& rendered, const Conversation& conversation, const TurnMarks& marks)
      : text_(rendered.text), conversation_(conversation), marks_(marks) {}

  TurnSpan locate(const RenderedTurns::Turn& turn) {
    TurnSpan span;
    find_begin(turn, span);
    find_end(turn, span);
    previous_end_ = span.end;
    return span;
  }

  /// A mark that was searched for must not be part of what somebody said.
  void require_own_marks() const {
    if (!row_holds(conversation_, marks_.end_of_turn) &&
        !row_holds(conversation_, without_end_space(marks_.header)))
      return;
    refuse_row("ambiguous_turn", "turns that cannot be told from what they say",
               "the template rewrites history, and the row itself holds '" + marks_.end_of_turn + "' or '" +
                   marks_.header + "', which mark its turns");
  }

  /// What was found must be the turn's own.
  void require_own_text(const RenderedTurns::Turn& turn, const TurnSpan& span) const {
    const std::string_view found = text_.substr(span.begin, span.end - span.begin);
    const Json& message = conversation_.messages[turn.message];
    if (!span_holds_content(found, message) || !holds_calls(found, message))
      fail(turn, "its content is not where its header is");
  }

 private:
  void find_begin(const RenderedTurns::Turn& turn, TurnSpan& span) const {
    const auto& before = turn.before;
    const std::string& header = marks_.header;
    if (before && before->size() >= previous_end_ && text_.starts_with(*before)) {
      span.begin = before->size();
    } else {
      span.is_searched = true;
      span.begin = header.empty() ? std::string_view::npos : text_.find(header, previous_end_);
      if (span.begin == std::string_view::npos)
        fail(turn, "its header '" + header + "' does not follow the turn before it");
      if (!marks_.generation_prompt.empty())
        span.begin +=
            (starts_at(span.begin, marks_.generation_prompt) ? marks_.generation_prompt : header).size();
    }
    // Without a generation prompt, the header is still to come.
    if (!marks_.generation_prompt.empty() || without_end_space(header).empty()) return;
    const auto bare = std::string_view(header).substr(0, header.find_last_not_of(' ') + 1);
    if (starts_at(span.begin, bare)) span.begin += bare.size();
  }

  void find_end(const RenderedTurns::Turn& turn, TurnSpan& span) const {
    const auto& through = turn.through;
    if (through && text_.starts_with(*through)) {
      span.end = without_end_space(*through).size();
      if (span.end >= span.begin) return;
    }
    span.is_searched = true;
    const size_t mark = text_.find(marks_.end_of_turn, span.begin);
    if (mark == std::string_view::npos)
      fail(turn, "no end of a turn ('" + marks_.end_of_turn + "') follows its header");
    span.end = mark + marks_.end_of_turn.size();
  }

  bool starts_at(size_t at, std::string_view what) const { return text_.substr(at).starts_with(what); }

  [[noreturn]] static void fail(const RenderedTurns::Turn& turn, const std::string& why) {
    refuse_row("turn_not_located", "a turn that is not found in the rendered text",
               "message " + std::to_string(turn.message) + ": " + why);
  }

  std::string_view text_;
  const Conversation& conversation_;
  const TurnMarks& marks_;
  size_t previous_end_ = 0;
};

}  // namespace

std::vector<TurnSpan> locate_turns(const RenderedTurns& rendered, const Conversation& conversation,
                                   const TurnMarks& marks) {
  if (marks.end_of_turn.empty())
    refuse_row("no_end_of_turn", "a template that marks no end of a turn",
               "what it writes after an answer is white space at most, so no answer would learn to end");
  TurnLocator locator(rendered, conversation, marks);
  std::vector<TurnSpan> spans;
  spans.reserve(rendered.turns.size());
  for (const auto& turn : rendered.turns) spans.push_back(locator.locate(turn));
  if (std::ranges::none_of(spans, &TurnSpan::is_searched)) return spans;
  locator.require_own_marks();
  for (size_t k = 0; k < spans.size(); ++k)
    if (spans[k].is_searched) locator.require_own_text(rendered.turns[k], spans[k]);
  return spans;
}

}  // namespace apus::data
