#include "data/turn_marks.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "data/jinja_unicode.h"
#include "data/row_renderer.h"

namespace apus::data {
namespace {

using Json = nlohmann::ordered_json;

// Without letters, so that a template which changes case or capitalises writes them as they are.
constexpr const char* kQuestion = "73519028460217";
constexpr const char* kAnswer = "92640173588396";

/// Renders conversations of the two texts.
class Probe {
 public:
  Probe(const ChatTemplate& chat, const Json& kwargs, const Clock* clock)
      : chat_(chat), kwargs_(kwargs), clock_(clock) {}

  RowRenderer of(std::initializer_list<const char*> texts) const {
    RowRenderer renderer(chat_, nullptr, kwargs_, clock_);
    for (const char* text : texts)
      renderer.add(Json{{"role", text == kAnswer ? "assistant" : "user"}, {"content", text}});
    return renderer;
  }
  std::optional<std::string> text(std::initializer_list<const char*> texts,
                                  GenerationPrompt prompt = GenerationPrompt::kWithout) const {
    return of(texts).try_render(prompt);
  }

 private:
  const ChatTemplate& chat_;
  const Json& kwargs_;
  const Clock* clock_;
};

std::string_view without_end_space(std::string_view text) {
  return jinja::strip(text, jinja::Side::kRight);
}

std::string prompt_of(const Probe& probe, const std::optional<std::string>& question) {
  const auto prompted = probe.text({kQuestion}, GenerationPrompt::kWith);
  if (!question || !prompted || !prompted->starts_with(*question)) return {};
  return prompted->substr(question->size());
}

/// What stands between a question and its answer in a conversation that goes on.
std::string before_answer(const Probe& probe, const std::optional<std::string>& question) {
  const auto longer = probe.text({kQuestion, kAnswer, kQuestion});
  if (!question || !longer || !longer->starts_with(*question)) return {};
  const size_t answer = longer->find(kAnswer, question->size());
  if (answer == std::string::npos) return {};
  return longer->substr(question->size(), answer - question->size());
}

std::optional<std::string> after_answer(const Probe& probe, GenerationPrompt prompt) {
  const auto text = probe.text({kQuestion, kAnswer}, prompt);
  const size_t answer = text ? text->rfind(kAnswer) : std::string::npos;
  if (answer == std::string::npos) return std::nullopt;
  return text->substr(answer + std::string_view(kAnswer).size());
}

std::string end_of_turn(const Probe& probe, const std::string& generation_prompt) {
  auto after = after_answer(probe, GenerationPrompt::kWith);
  if (after && after->ends_with(generation_prompt))
    after->resize(after->size() - generation_prompt.size());
  else
    after = after_answer(probe, GenerationPrompt::kWithout);
  return std::string(without_end_space(after.value_or("")));
}

}  // namespace

TurnMarks learn_turn_marks(const ChatTemplate& chat, const Json& kwargs, const Clock* clock) {
  const Probe probe(chat, kwargs, clock);
  const auto question = probe.text({kQuestion});
  TurnMarks marks;
  marks.generation_prompt = prompt_of(probe, question);
  marks.header = before_answer(probe, question);
  const std::string& prompt = marks.generation_prompt;
  if (!prompt.empty()) {
    const auto common = std::ranges::mismatch(prompt, marks.header);
    marks.header.resize(static_cast<size_t>(common.in1 - prompt.begin()));
  }
  marks.end_of_turn = end_of_turn(probe, prompt);
  return marks;
}

bool blocks_leave_end_out(const ChatTemplate& chat, const Json& kwargs, const Clock* clock,
                          const std::string& end_of_turn) {
  RowRenderer renderer = Probe(chat, kwargs, clock).of({kQuestion, kAnswer});
  RenderResult result;
  try {
    result = renderer.render();
  } catch (const Error&) {
    return false;  // rows say it themselves
  }
  for (const auto& [begin, end] : result.generation_spans) {
    const size_t first = jinja::byte_offset(result.text, begin);
    const auto block =
        std::string_view(result.text).substr(first, jinja::byte_offset(result.text, end) - first);
    const size_t answer = block.find(kAnswer);
    if (answer != std::string_view::npos) return block.find(end_of_turn, answer) == std::string_view::npos;
  }
  return false;
}

}  // namespace apus::data
