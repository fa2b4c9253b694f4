#pragma once

#include <cstddef>
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

/// Tokens with, for each, the byte of the text at which it starts.
struct PlacedTokens {
  std::vector<int32_t> ids;
  std::vector<size_t> begins;
};

/// Tokens of a text without special tokens, and their places before normalisation. Throws as row_tokens.
PlacedTokens placed_tokens(const Tokenizer& tokenizer, const std::string& text);

}  // namespace apus::data
