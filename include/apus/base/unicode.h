#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "apus/base/api.h"

namespace apus {

/// Stands for bytes that are not UTF-8.
inline constexpr char32_t kReplacementCharacter = 0xFFFD;

/// One step through UTF-8 text.
struct Utf8Step {
  /// U+FFFD where the bytes are invalid.
  char32_t code_point = kReplacementCharacter;
  /// Bytes taken, at least 1; for invalid text the longest prefix of a sequence, as Unicode 15 section 3.9
  /// advises and Python does.
  std::size_t length = 1;
  bool valid = false;
};

/// Decodes the code point that starts at `position`, which must be inside the text. Overlong forms,
/// surrogates and values above U+10FFFF are invalid.
APUS_API Utf8Step decode_utf8(std::string_view text, std::size_t position);

/// Appends a code point; a surrogate or a value above U+10FFFF becomes U+FFFD.
APUS_API void append_utf8(std::string& out, char32_t code_point);

/// Bytes before the first invalid sequence; the text's size if all is valid.
APUS_API std::size_t valid_utf8_prefix(std::string_view text);

/// Whether the whole text is UTF-8.
APUS_API bool is_valid_utf8(std::string_view text);

/// Number of code points; an invalid sequence counts as one.
APUS_API std::size_t utf8_length(std::string_view text);

/// All code points, U+FFFD for invalid sequences.
APUS_API std::u32string to_code_points(std::string_view text);

/// UTF-8 of the code points.
APUS_API std::string to_utf8(std::u32string_view code_points);

/// The text with every invalid sequence replaced by U+FFFD.
APUS_API std::string replace_invalid_utf8(std::string_view text);

/// Bytes at the end that begin a sequence which more bytes could complete (0 to 3): what a streaming decoder
/// holds back.
APUS_API std::size_t incomplete_utf8_tail(std::string_view text);

}  // namespace apus
