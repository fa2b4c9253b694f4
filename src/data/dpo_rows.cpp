#include "apus/data/dpo_rows.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "apus/base/error.h"
#include "apus/data/dpo_rows_json.h"
#include "apus/data/row_notes.h"
#include "data/row_encoding.h"
#include "data/row_json.h"
#include "data/row_renderer.h"
#include "data/tool_notes.h"

namespace apus::data {
namespace {

using Json = nlohmann::ordered_json;

StringRule string_rule_of(const TokenizerFolder& folder, const DpoEncodeOptions& options) {
  if (!folder.chat_template) return StringRule::kRawForLackOfOne;
  return options.use_chat_template ? StringRule::kChatTemplate : StringRule::kRawBecauseOfOption;
}

Json message(const char* role, const Json& content) {
  return Json{{"role", role}, {"content", content}};
}

/// The prompt of an example as messages, with a system message in front where there is a text for one.
Json prompt_messages(const DpoExample& example, const std::optional<std::string>& default_system) {
  Json messages = example.is_conversation() ? example.prompt : Json::array({message("user", example.prompt)});
  if (messages.front()["role"] == "system") return messages;
  const std::optional<std::string>& system = example.system ? example.system : default_system;
  if (system) messages.insert(messages.begin(), message("system", *system));
  return messages;
}

/// An answer as messages.
Json as_messages(const Json& answer) {
  return answer.is_array() ? answer : Json::array({message("assistant", answer)});
}

template <typename Values>
size_t common_prefix(const Values& a, const Values& b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

/// Cuts both whole sequences where the first of them leaves the prompt.
DpoRow split_at_prompt(std::vector<int32_t> prompt, const std::vector<int32_t>& with_chosen,
                       const std::vector<int32_t>& with_rejected) {
  const size_t start = std::min(common_prefix(prompt, with_chosen), common_prefix(prompt, with_rejected));
  const auto at = static_cast<std::ptrdiff_t>(start);
  prompt.resize(start);
  DpoRow row;
  row.prompt_ids = std::move(prompt);
  row.chosen_ids.assign(with_chosen.begin() + at, with_chosen.end());
  row.rejected_ids.assign(with_rejected.begin() + at, with_rejected.end());
  return row;
}

/// Makes one sequence fit; returns the number of prompt tokens that are left out.
int32_t cut_sequence(size_t prompt_size, std::vector<int32_t>& answer, size_t max_length,
                     Truncation truncation) {
  const size_t length = prompt_size + answer.size();
  if (length <= max_length) return 0;
  const size_t excess = length - max_length;
  if (truncation == Truncation::kRight) {
    answer.resize(answer.size() - excess);
    return 0;
  }
  const size_t from_prompt = std::min(excess, prompt_size);
  answer.erase(answer.begin(), answer.begin() + static_cast<std::ptrdiff_t>(excess - from_prompt));
  return static_cast<int32_t>(from_prompt);
}

void require_completion(const char* name, int64_t length, size_t answer_size) {
  const auto size = static_cast<int64_t>(answer_size);
  if (size - (length == size ? 1 : 0) > 0) return;
  refuse_row("no_completion_token", "no completion token left",
             detail::concat(name, " has ", size, " tokens, ", length - size, " prompt tokens before them"));
}

void refuse_longer(const DpoRow& row, int64_t max_length) {
  const bool chosen_is_longer = row.chosen_ids.size() >= row.rejected_ids.size();
  const size_t answer = chosen_is_longer ? row.chosen_ids.size() : row.rejected_ids.size();
  refuse_row(
      "too_long", "longer than max_length",
      detail::concat("prompt ", row.prompt_ids.size(), " + ", chosen_is_longer ? "chosen " : "rejected ",
                     answer, " = ", row.prompt_ids.size() + answer, " tokens, max_length is ", max_length,
                     " (truncation_strategy delete)"));
}

}  // namespace

DpoEncoder::DpoEncoder(TokenizerFolder folder, DpoEncodeOptions options)
    : folder_(std::move(folder)),
      options_(std::move(options)),
      rule_(string_rule_of(folder_, options_)),
      template_(rule_ == StringRule::kChatTemplate ? chat_template_of(folder_) : std::nullopt) {
  check_template_kwargs(options_.template_kwargs);
  const char* why =
      rule_ == StringRule::kRawForLackOfOne ? "the tokenizer has none" : "--use_chat_template is false";
  APUS_CHECK(!options_.system || template_, ConfigError, "--system needs a chat template to put it in, but ",
             why);
  APUS_CHECK(options_.template_kwargs.is_null() || template_, ConfigError,
             "template_kwargs need a chat template, but ", why);
}

DpoEncoder::~DpoEncoder() = default;

DpoRow DpoEncoder::encode_line(std::string_view text) const {
  RowNotes notes;
  return encode_line(text, notes);
}

DpoRow DpoEncoder::encode_line(std::string_view text, RowNotes& notes) const {
  return this->encode(parse_dpo_example(text, options_.columns, notes), notes);
}

DpoRow DpoEncoder::encode(const DpoExample& example) const {
  RowNotes notes;
  return this->encode(example, notes);
}

DpoRow DpoEncoder::encode(const DpoExample& example, RowNotes& notes) const {
  DpoRow row = template_ ? encode_conversation(example, notes) : encode_raw(example);
  row.margin = example.margin;
  notes.has_equal_answers = row.chosen_ids == row.rejected_ids;
  return row;
}

DpoRow DpoEncoder::encode_raw(const DpoExample& example) const {
  const char* why = rule_ == StringRule::kRawForLackOfOne
                        ? "the tokenizer has none (--template chatml names one)"
                        : "use_chat_template is false";
  if (example.is_conversation())
    refuse_row("no_template", "message lists need a chat template",
               std::string(why) + "; give plain strings");
  if (example.system) refuse_row("no_template", "key 'system' needs a chat template", why);
  if (!example.tools.is_null()) refuse_row("no_template", "key 'tools' needs a chat template", why);
  const std::string eos = folder_.config.eos_token.value_or("");
  const auto& prompt = example.prompt.get_ref<const std::string&>();
  const auto encode_with = [&](const Json& answer) {
    const auto& text = answer.get_ref<const std::string&>();
    return row_tokens(*folder_.tokenizer, prompt + text + (text.ends_with(eos) ? "" : eos), {});
  };
  return split_at_prompt(row_tokens(*folder_.tokenizer, prompt, {}), encode_with(example.chosen),
                         encode_with(example.rejected));
}

DpoRow DpoEncoder::encode_conversation(const DpoExample& example, RowNotes& notes) const {
  const Json prompt = prompt_messages(example, options_.system);
  const auto render = [&](const Json& answer, GenerationPrompt ending) {
    RowRenderer rows(*template_, example.tools, options_.template_kwargs, options_.clock);
    for (const Json& each : prompt) rows.add(each);
    for (const Json& each : answer) rows.add(each);
    return rows.render(ending).text;
  };
  const auto tokens = [&](const std::string& text) {
    return row_tokens(*folder_.tokenizer, text, {.add_special_tokens = false});
  };
  const std::string asked = render(Json::array(), GenerationPrompt::kWith);
  note_tools(example.tools, asked, notes);
  for (const Json& each : prompt) note_calls(each, asked, notes);
  const auto encode_answer = [&](const Json& answer) {
    const Json messages = as_messages(answer);
    const std::string text = render(messages, GenerationPrompt::kWithout);
    const std::string_view own = std::string_view(text).substr(common_prefix(asked, text));
    for (const Json& each : messages) note_calls(each, own, notes);
    return tokens(text);
  };
  std::vector<int32_t> prompt_ids = tokens(asked);
  const std::vector<int32_t> chosen = encode_answer(example.chosen);
  return split_at_prompt(std::move(prompt_ids), chosen, encode_answer(example.rejected));
}

RowFit fit_dpo_row(DpoRow& row, std::optional<int64_t> max_length, Truncation truncation) {
  const auto prompt_size = static_cast<int64_t>(row.prompt_ids.size());
  bool cut = false;
  if (max_length) {
    if (prompt_size >= *max_length)
      refuse_row("prompt_too_long", "prompt of max_length tokens or more",
                 detail::concat("prompt has ", prompt_size, " tokens, max_length is ", *max_length));
    cut = std::max(row.chosen_length(), row.rejected_length()) > *max_length;
    if (cut && truncation == Truncation::kDelete) refuse_longer(row, *max_length);
    const auto limit = static_cast<size_t>(*max_length);
    row.chosen_prompt_begin = cut_sequence(row.prompt_ids.size(), row.chosen_ids, limit, truncation);
    row.rejected_prompt_begin = cut_sequence(row.prompt_ids.size(), row.rejected_ids, limit, truncation);
  }
  require_completion("chosen", row.chosen_length(), row.chosen_ids.size());
  require_completion("rejected", row.rejected_length(), row.rejected_ids.size());
  return cut ? RowFit::kTruncated : RowFit::kWhole;
}

}  // namespace apus::data
