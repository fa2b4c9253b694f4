#include "data/jinja_unescape.h"

#include <algorithm>
#include <cstdint>

#include "data/jinja_unicode.h"

namespace apus::data::jinja {
namespace {

// Escapes of one letter; 0 for the letters that are none.
char simple_escape(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case 'a':
      return '\a';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case '\\':
    case '\'':
    case '"':
      return c;
    default:
      return '\0';
  }
}

size_t hex_digits(char c) {
  return c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
}

std::optional<uint32_t> parse_hex(std::string_view text, size_t pos, size_t count) {
  if (pos + count > text.size()) return std::nullopt;
  uint32_t value = 0;
  for (const char c : text.substr(pos, count)) {
    const std::string_view digits = "0123456789abcdef";
    const size_t digit = digits.find(static_cast<char>(c >= 'A' && c <= 'F' ? c + 32 : c));
    if (digit == std::string_view::npos) return std::nullopt;
    value = value << 4 | static_cast<uint32_t>(digit);
  }
  return value;
}

bool is_octal(char c) {
  return c >= '0' && c <= '7';
}

uint32_t take_octal(std::string_view body, size_t& pos) {
  uint32_t value = 0;
  for (int i = 0; i < 3 && pos < body.size() && is_octal(body[pos]); ++i) {
    value = value * 8 + static_cast<uint32_t>(body[pos++] - '0');
  }
  return value;
}

// The low half of a surrogate pair that follows a high half, written as an escape of its own.
std::optional<uint32_t> low_surrogate(std::string_view body, size_t pos) {
  if (body.substr(pos, 2) != "\\u") return std::nullopt;
  const auto low = parse_hex(body, pos + 2, 4);
  return low && *low >= 0xDC00 && *low < 0xE000 ? low : std::nullopt;
}

// Decodes \x, \u and \U behind the backslash; `pos` is at the letter and moves past the escape.
bool take_hex(std::string_view body, size_t& pos, std::string& out, std::string& reason) {
  const char letter = body[pos];
  const size_t count = hex_digits(letter);
  const auto value = parse_hex(body, pos + 1, count);
  if (!value || *value > 0x10FFFF) {
    reason = std::string("broken \\") + letter + " escape in a string: expected " + std::to_string(count) +
             " hexadecimal digits of a code point";
    return false;
  }
  pos += 1 + count;
  uint32_t cp = *value;
  if (cp >= 0xD800 && cp < 0xDC00) {
    if (const auto low = low_surrogate(body, pos)) {
      cp = 0x10000 + ((cp - 0xD800) << 10) + (*low - 0xDC00);
      pos += 6;
    }
  }
  append_code_point(out, cp);
  return true;
}

bool take_escape(std::string_view body, size_t& pos, std::string& out, std::string& reason) {
  const char c = body[pos];
  if (const char plain = simple_escape(c); plain != '\0') {
    out += plain;
    ++pos;
  } else if (c == '\n') {
    ++pos;
  } else if (is_octal(c)) {
    append_code_point(out, take_octal(body, pos));
  } else if (hex_digits(c) != 0) {
    return take_hex(body, pos, out, reason);
  } else if (c == 'N') {
    reason = "\\N{...} escapes are not supported: write \\uXXXX";
    return false;
  } else {
    out += '\\';
  }
  return true;
}

}  // namespace

std::string normalize_newlines(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      out += text[i];
      continue;
    }
    out += '\n';
    if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
  }
  return out;
}

std::optional<std::string> unescape(std::string_view body, std::string& reason) {
  std::string out;
  out.reserve(body.size());
  for (size_t pos = 0; pos < body.size();) {
    if (body[pos] != '\\') {
      out += body[pos++];
      continue;
    }
    if (++pos == body.size()) {
      reason = "\\ at the end of a string";
      return std::nullopt;
    }
    if (!take_escape(body, pos, out, reason)) return std::nullopt;
  }
  return out;
}

}  // namespace apus::data::jinja
