#include "data/row_encoding.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "apus/base/error.h"
#include "data/row_json.h"

namespace apus::data {
namespace {

constexpr std::string_view kSpelledSpace = "\u0120";

[[noreturn]] void refuse_text(const std::string& why) {
  refuse_row("bad_text", "text that the tokenizer cannot read", why);
}

/// Runs an encoder; its complaints about the text refuse the row.
template <typename Encode>
auto encoded(const Encode& encode) {
  try {
    return encode();
  } catch (const DataError& error) {
    refuse_text(error.reason());
  } catch (const NotSupported& error) {
    refuse_text(error.what());
  }
}

/// Spaces at the start of a token's name.
int64_t leading_spaces(const Tokenizer& tokenizer, int32_t id) {
  const std::string name = tokenizer.id_to_token(id).value_or("");
  std::string_view rest = name;
  int64_t count = 0;
  for (;; ++count) {
    if (rest.starts_with(' '))
      rest.remove_prefix(1);
    else if (rest.starts_with(kSpelledSpace))
      rest.remove_prefix(kSpelledSpace.size());
    else
      return count;
  }
}

/// Where the tokens start if their bytes, one after another, are the text itself: the common case, and far
/// cheaper than tracking places through the tokenizer.
std::optional<std::vector<size_t>> tiled_begins(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                                                std::string_view text) {
  std::vector<size_t> begins;
  begins.reserve(ids.size());
  size_t at = 0;
  for (const int32_t& id : ids) {
    const std::string bytes = tokenizer.decode_bytes({&id, 1});
    if (bytes.empty() || !text.substr(at).starts_with(bytes)) return std::nullopt;
    begins.push_back(at);
    at += bytes.size();
  }
  return at == text.size() ? std::optional(std::move(begins)) : std::nullopt;
}

/// Where the tokens start by the tokenizer's own account.
PlacedTokens tracked_tokens(const Tokenizer& tokenizer, const std::string& text) {
  Encoding encoding =
      encoded([&] { return tokenizer.encode_with_offsets(text, {.add_special_tokens = false}); });
  PlacedTokens placed{std::move(encoding.ids), {}};
  placed.begins.reserve(placed.ids.size());
  std::vector<size_t> bytes;  // of each code point
  for (size_t i = 0; i < text.size(); ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) bytes.push_back(i);
  bytes.push_back(text.size());
  int64_t previous_end = 0;
  for (size_t i = 0; i < placed.ids.size(); ++i) {
    TokenOffsets place = encoding.offsets[i];
    // Post-processors that trim leave a gap where a token's own leading spaces stand.
    if (place.begin > previous_end)
      place.begin -= std::min(place.begin - previous_end, leading_spaces(tokenizer, placed.ids[i]));
    placed.begins.push_back(bytes[std::min(static_cast<size_t>(place.begin), bytes.size() - 1)]);
    previous_end = std::max(previous_end, place.end);
  }
  return placed;
}

}  // namespace

std::optional<ChatTemplate> chat_template_of(const TokenizerFolder& folder) {
  if (!folder.chat_template) return std::nullopt;
  SpecialTokens tokens{folder.config.bos_token, folder.config.eos_token, folder.config.pad_token,
                       folder.config.unk_token};
  const bool is_as_read = folder.chat_template == folder.config.chat_template();
  const bool has_source = is_as_read && !folder.chat_template_source.empty();
  return ChatTemplate(
      JinjaTemplate::parse(*folder.chat_template, has_source ? folder.chat_template_source : "chat_template"),
      std::move(tokens));
}

std::vector<int32_t> row_tokens(const Tokenizer& tokenizer, const std::string& text, EncodeOptions options) {
  return encoded([&] { return tokenizer.encode(text, options); });
}

PlacedTokens placed_tokens(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> ids = row_tokens(tokenizer, text, {.add_special_tokens = false});
  if (auto begins = tiled_begins(tokenizer, ids, text)) return {std::move(ids), std::move(*begins)};
  return tracked_tokens(tokenizer, text);
}

}  // namespace apus::data
