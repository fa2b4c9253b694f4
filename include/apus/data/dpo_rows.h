#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "apus/base/api.h"
#include "apus/data/chat_template.h"
#include "apus/data/columns.h"
#include "apus/data/rows.h"
#include "apus/data/tokenizer_config.h"

namespace apus {
class Clock;
}

namespace apus::data {

struct DpoExample;
struct RowNotes;

/// How strings and conversations become tokens.
struct DpoEncodeOptions {
  /// Whether plain strings go through the tokenizer's chat template (if it has one) as one user turn and two
  /// assistant answers; otherwise they are raw text.
  bool use_chat_template = true;
  /// System text for rows that have none of their own; none = what the template does by itself.
  std::optional<std::string> system = {};
  /// Other names for a row's keys.
  ColumnMap columns = {};
  /// More variables for the template (an object), e.g. {"enable_thinking": false}; null = none.
  nlohmann::ordered_json template_kwargs = nullptr;
  /// The time that a template may ask for; nullptr: asking is an error.
  const Clock* clock = nullptr;
};

/// Which rule turns plain strings into tokens.
enum class StringRule {
  kChatTemplate,        ///< one user turn, two assistant answers
  kRawBecauseOfOption,  ///< raw text: use_chat_template is false
  kRawForLackOfOne,     ///< raw text: the tokenizer has no chat template
};

/// Turns preference rows into tokens.
///
/// Raw text: the eos text is appended to both answers unless they end in it; prompt, prompt + chosen and
/// prompt + rejected are tokenised whole. Conversations: prompt with the generation prompt, prompt + answer
/// without, through the chat template, no token added. Either way the completion of both answers starts at
/// the smaller of their common prefixes with the prompt, so tokens that merge across the border are trained.
/// Threads: const, may be shared.
/// Source:  TRL 1.16 DPOTrainer, as recorded in tests/data/cases/dpo.
class APUS_API DpoEncoder final {
 public:
  /// Throws:  ConfigError if a system text or template_kwargs are given and strings are raw text, or
  ///          template_kwargs are no object; JinjaError for a template that cannot be read.
  DpoEncoder(TokenizerFolder folder, DpoEncodeOptions options);
  ~DpoEncoder();

  /// The rule for plain strings.
  StringRule string_rule() const { return rule_; }

  /// The tokens of one line of a file, nothing cut.
  /// Throws:  RowRefused: as parse_dpo_example, and bad_text, template_error, no_template; NotSupported if
  ///          the template needs what this build lacks.
  DpoRow encode_line(std::string_view text) const;

  /// The same; adds to `notes` what should be known about the row.
  DpoRow encode_line(std::string_view text, RowNotes& notes) const;

  /// The same for a row that is already taken apart.
  DpoRow encode(const DpoExample& example) const;

  /// As above.
  DpoRow encode(const DpoExample& example, RowNotes& notes) const;

 private:
  DpoRow encode_raw(const DpoExample& example) const;
  DpoRow encode_conversation(const DpoExample& example, RowNotes& notes) const;

  TokenizerFolder folder_;
  DpoEncodeOptions options_;
  StringRule rule_;
  std::optional<ChatTemplate> template_;
};

/// What `fit_dpo_row` did.
enum class RowFit { kWhole, kTruncated };

/// Makes a row fit max_length tokens a sequence (none = no bound), each answer with its prompt by itself. A
/// row must keep at least one answer token that something predicts, in both answers.
/// Throws:  RowRefused: prompt_too_long if the prompt alone has max_length tokens or more (under every
///          strategy), too_long if the row is longer and the strategy is kDelete, no_completion_token if none
///          is left in either answer.
APUS_API RowFit fit_dpo_row(DpoRow& row, std::optional<int64_t> max_length, Truncation truncation);

}  // namespace apus::data
