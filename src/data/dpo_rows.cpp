#include "apus/data/dpo_rows.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "apus/base/error.h"
#include "apus/data/dpo_rows_json.h"
#include "apus/data/rows_report.h"

namespace apus::data {
namespace {

using Json = nlohmann::ordered_json;

StringRule string_rule_of(const TokenizerFolder& folder, const DpoEncodeOptions& options) {
  if (!folder.chat_template) return StringRule::kRawForLackOfOne;
  return options.use_chat_template ? StringRule::kChatTemplate : StringRule::kRawBecauseOfOption;
}

std::optional<ChatTemplate> make_template(const TokenizerFolder& folder, StringRule rule) {
  if (rule != StringRule::kChatTemplate) return std::nullopt;
  SpecialTokens tokens{folder.config.bos_token, folder.config.eos_token, folder.config.pad_token,
                       folder.config.unk_token};
  return ChatTemplate(JinjaTemplate::parse(*folder.chat_template, "chat_template"), std::move(tokens));
}

/// Tokens of a text; a text that the tokenizer cannot take refuses the row.
std::vector<int32_t> tokens_of(const Tokenizer& tokenizer, const std::string& text, EncodeOptions options) {
  try {
    return tokenizer.encode(text, options);
  } catch (const DataError& error) {
    throw RowRefused({"text that the tokenizer cannot read", error.reason()});
  } catch (const NotSupported& error) {
    throw RowRefused({"text that the tokenizer cannot read", error.what()});
  }
}

std::string rendered(const ChatTemplate& chat, const Json& messages, const ChatRenderOptions& options) {
  try {
    return chat.render(messages, options);
  } catch (const JinjaError& error) {
    if (error.kind() == JinjaErrorKind::kNotSupported) throw NotSupported(error.what());
    throw RowRefused({"refused by the chat template", error.what()});
  }
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

Json with_answer(Json messages, const Json& answer) {
  if (!answer.is_array()) {
    messages.push_back(message("assistant", answer));
    return messages;
  }
  for (const Json& each : answer) messages.push_back(each);
  return messages;
}

size_t common_prefix(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
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
  throw RowRefused({"no completion token left", std::string(name) + " has " + std::to_string(size) +
                                                    " tokens, " + std::to_string(length - size) +
                                                    " prompt tokens before them"});
}

void refuse_longer(const DpoRow& row, int64_t max_length) {
  const bool chosen_is_longer = row.chosen_ids.size() >= row.rejected_ids.size();
  const size_t answer = chosen_is_longer ? row.chosen_ids.size() : row.rejected_ids.size();
  throw RowRefused(
      {"longer than max_length",
       detail::concat("prompt ", row.prompt_ids.size(), " + ", chosen_is_longer ? "chosen " : "rejected ",
                      answer, " = ", row.prompt_ids.size() + answer, " tokens, max_length is ", max_length,
                      " (truncation_strategy delete)")});
}

}  // namespace

DpoEncoder::DpoEncoder(TokenizerFolder folder, DpoEncodeOptions options)
    : folder_(std::move(folder)),
      options_(std::move(options)),
      rule_(string_rule_of(folder_, options_)),
      template_(make_template(folder_, rule_)) {
  APUS_CHECK(
      !options_.system || rule_ == StringRule::kChatTemplate, ConfigError,
      "--system needs a chat template to put it in, but ",
      rule_ == StringRule::kRawForLackOfOne ? "the tokenizer has none" : "--use_chat_template is false");
}

DpoEncoder::~DpoEncoder() = default;

DpoRow DpoEncoder::encode_line(std::string_view text) const {
  return this->encode(parse_dpo_example(text));
}

DpoRow DpoEncoder::encode(const DpoExample& example) const {
  if (rule_ == StringRule::kChatTemplate) return encode_conversation(example);
  const char* why =
      rule_ == StringRule::kRawForLackOfOne ? "the tokenizer has none" : "use_chat_template is false";
  if (example.is_conversation())
    throw RowRefused({"message lists need a chat template", std::string(why) + "; give plain strings"});
  if (example.system) throw RowRefused({"key 'system' needs a chat template", why});
  return encode_raw(example);
}

DpoRow DpoEncoder::encode_raw(const DpoExample& example) const {
  const std::string eos = folder_.config.eos_token.value_or("");
  const auto& prompt = example.prompt.get_ref<const std::string&>();
  const auto encode_with = [&](const Json& answer) {
    const auto& text = answer.get_ref<const std::string&>();
    return tokens_of(*folder_.tokenizer, prompt + text + (text.ends_with(eos) ? "" : eos), {});
  };
  return split_at_prompt(tokens_of(*folder_.tokenizer, prompt, {}), encode_with(example.chosen),
                         encode_with(example.rejected));
}

DpoRow DpoEncoder::encode_conversation(const DpoExample& example) const {
  const Json prompt = prompt_messages(example, options_.system);
  const auto encode_messages = [&](const Json& messages, bool for_answer) {
    const ChatRenderOptions render{.add_generation_prompt = for_answer, .render = {.clock = options_.clock}};
    return tokens_of(*folder_.tokenizer, rendered(*template_, messages, render),
                     {.add_special_tokens = false});
  };
  return split_at_prompt(encode_messages(prompt, true),
                         encode_messages(with_answer(prompt, example.chosen), false),
                         encode_messages(with_answer(prompt, example.rejected), false));
}

RowFit fit_dpo_row(DpoRow& row, std::optional<int64_t> max_length, Truncation truncation) {
  const auto prompt_size = static_cast<int64_t>(row.prompt_ids.size());
  bool cut = false;
  if (max_length) {
    if (prompt_size >= *max_length)
      throw RowRefused({"prompt of max_length tokens or more",
                        detail::concat("prompt has ", prompt_size, " tokens, max_length is ", *max_length)});
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
