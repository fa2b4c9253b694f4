#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apus/data/chat_template.h"
#include "apus/data/tokenizer_config.h"

namespace apus::data {

/// The chat template of a folder, if it has one. Throws JinjaError where it cannot be read.
std::optional<ChatTemplate> chat_template_of(const TokenizerFolder& folder);

/// Tokens of a text. Throws RowRefused (bad_text) where the tokenizer cannot take it.
std::vector<int32_t> row_tokens(const Tokenizer& tokenizer, const std::string& text, EncodeOptions options);

/// Tokens of a text without special tokens, and for each the code point of the text that its first byte
/// belongs to. Throws as row_tokens.
struct PlacedTokens {
  std::vector<int32_t> ids;
  std::vector<int64_t> begins;
};
PlacedTokens placed_tokens(const Tokenizer& tokenizer, const std::string& text);

}  // namespace apus::data
