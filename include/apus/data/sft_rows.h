#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/api.h"
#include "apus/data/columns.h"
#include "apus/data/dpo_rows.h"
#include "apus/data/rows.h"
#include "apus/data/tokenizer_config.h"

namespace apus {
class Clock;
}

namespace apus::data {

struct Conversation;
struct RowNotes;

/// What is made of a row of text.
enum class SftTask {
  kChat,      ///< conversations go through the chat template; {"text"} is taken as it is
  kPretrain,  ///< only plain texts: {"text"}, or one assistant message
};

/// What tokens count in the loss where a row does not say so itself.
enum class LossScale {
  kDefault,    ///< every assistant turn 1, the rest 0
  kLastRound,  ///< the last assistant turn 1, the rest 0
  kAll,        ///< every token 1
};

/// Reads the value of a flag: "default", "last_round" or "all".
/// Throws:  NotSupported naming flag and value for anything else.
APUS_API LossScale parse_loss_scale(const std::string& name, const std::string& flag = "--loss_scale");

/// How rows become tokens and labels.
struct SftEncodeOptions {
  SftTask task = SftTask::kChat;
  /// System text for conversations that have none of their own; none = what the template does by itself.
  std::optional<std::string> system = {};
  LossScale loss_scale = LossScale::kDefault;
  /// Other names for a row's keys.
  ColumnMap columns = {};
  /// More variables for the template (an object), e.g. {"enable_thinking": false}; null = none.
  nlohmann::ordered_json template_kwargs = nullptr;
  /// The time that a template may ask for; nullptr: asking is an error.
  const Clock* clock = nullptr;
};

/// Turns rows of text (every shape of conversation.h) into tokens and labels.
///
/// The conversation is rendered once and tokenised once, without adding special tokens. What the assistant
/// wrote is trained: the template's generation blocks if it has them; else each turn from the end of its
/// header to the end of its end-of-turn text, found by rendering the messages before it and through it, or by
/// searching for header and end-of-turn text where the template writes history differently. A turn that
/// cannot be found beyond doubt refuses the row. A token belongs to a turn if its first byte does. Plain text
/// is tokenised with the tokenizer's own special tokens, an eos is appended, and every token is trained.
/// Nothing is cut: see fit_sft_row.
/// Threads: const, may be shared.
/// Source:  the rules are written down in docs/design/text.md.
class APUS_API SftEncoder final {
 public:
  /// Throws:  JinjaError for a template that cannot be read; ConfigError for a system text where nothing goes
  ///          through a template, or template_kwargs that are no object.
  SftEncoder(TokenizerFolder folder, SftEncodeOptions options);
  ~SftEncoder();
  SftEncoder(const SftEncoder&) = delete;
  SftEncoder& operator=(const SftEncoder&) = delete;

  /// The tokens and labels of one line of a file.
  /// Throws:  RowRefused: as make_conversation, and bad_json, no_template, template_error, no_end_of_turn,
  ///          turn_not_located, ambiguous_turn, generation_blocks, bad_text; NotSupported if the template
  ///          needs what this build lacks.
  SftRow encode_line(std::string_view text) const;

  /// The same; adds to `notes` what should be known about the row.
  SftRow encode_line(std::string_view text, RowNotes& notes) const;

  /// The same for a row that is already taken apart.
  SftRow encode(Conversation conversation) const;

  /// As above.
  SftRow encode(Conversation conversation, RowNotes& notes) const;

  /// One sentence for the log: what becomes of conversations and how their turns are found.
  const std::string& rule_text() const;

  /// What somebody who trains with this template should know: warnings, one sentence each. None as a rule.
  const std::vector<std::string>& warnings() const;

 private:
  struct State;
  std::unique_ptr<const State> state_;
};

/// Makes a row fit max_length tokens (none = no bound): kDelete refuses a longer one, kLeft keeps its last
/// tokens, kRight its first.
/// Throws:  RowRefused: too_long; no_trained_token if no label behind the first position is left.
APUS_API RowFit fit_sft_row(SftRow& row, std::optional<int64_t> max_length, Truncation truncation);

}  // namespace apus::data
