#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "apus/base/api.h"
#include "apus/data/jinja.h"

namespace apus::data {

/// The texts of a tokenizer's special tokens, as far as it has them.
/// What is absent is undefined in the template (not null).
struct APUS_API SpecialTokens {
  std::optional<std::string> bos;  ///< bos_token
  std::optional<std::string> eos;  ///< eos_token
  std::optional<std::string> pad;  ///< pad_token
  std::optional<std::string> unk;  ///< unk_token
};

/// What one rendering of a conversation adds to its messages.
struct APUS_API ChatRenderOptions {
  /// End with the header of an assistant turn, so that a model would answer.
  bool add_generation_prompt = false;
  /// Tool descriptions (an array); nullptr and an empty array reach the template as null.
  const nlohmann::ordered_json* tools = nullptr;
  /// Retrieved documents (an array); nullptr and an empty array reach the template as null.
  const nlohmann::ordered_json* documents = nullptr;
  /// More variables (an object), e.g. enable_thinking. They win over all others of the same name.
  const nlohmann::ordered_json* extra = nullptr;
  /// Clock and limits.
  RenderOptions render = {};
};

/// Turns a conversation into the text that a model was trained on.
/// The template sees what transformers' apply_chat_template gives it: messages, tools, documents,
/// add_generation_prompt, the special tokens, and `extra`.
/// Threads: const, may be shared.
class APUS_API ChatTemplate final {
 public:
  explicit ChatTemplate(JinjaTemplate jinja, SpecialTokens tokens = {});

  /// The conversation as text. `messages` is an array of objects with role and content.
  /// Throws: JinjaError; ConfigError if messages is no array or an option has the wrong JSON type.
  std::string render(const nlohmann::ordered_json& messages, const ChatRenderOptions& options = {}) const;

  /// The variables that the template sees, for callers who render one conversation several times and change
  /// a part of it in between.
  /// Throws: ConfigError, as above.
  nlohmann::ordered_json context(const nlohmann::ordered_json& messages,
                                 const ChatRenderOptions& options = {}) const;

  /// The same as render, with the spans of the generation blocks.
  RenderResult render_with_spans(const nlohmann::ordered_json& messages,
                                 const ChatRenderOptions& options = {}) const;

  const JinjaTemplate& jinja() const { return jinja_; }
  const SpecialTokens& special_tokens() const { return tokens_; }

 private:
  JinjaTemplate jinja_;
  SpecialTokens tokens_;
};

}  // namespace apus::data
