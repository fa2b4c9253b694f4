#include "apus/base/unicode.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace apus {
namespace {

// What a lead byte announces: continuation bytes, and the range of the first of them.
struct Lead {
  std::size_t more = 0;
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
};

Lead classify(uint8_t lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return {.more = 1};
  if (lead == 0xE0) return {.more = 2, .low = 0xA0};
  if (lead == 0xED) return {.more = 2, .high = 0x9F};
  if (lead >= 0xE1 && lead <= 0xEF) return {.more = 2};
  if (lead == 0xF0) return {.more = 3, .low = 0x90};
  if (lead >= 0xF1 && lead <= 0xF3) return {.more = 3};
  if (lead == 0xF4) return {.more = 3, .high = 0x8F};
  return {};
}

// Bytes at `position` that are valid for sure: eight of ASCII, or a character of the most usual forms; 0 if
// the slow way has to look.
std::size_t quick_valid_bytes(std::string_view text, std::size_t position) {
  uint64_t word = 0;
  if (position + sizeof(word) > text.size()) return 0;
  std::memcpy(&word, text.data() + position, sizeof(word));
  if ((word & 0x8080808080808080ULL) == 0) return sizeof(word);
  const auto byte = [&](std::size_t i) { return static_cast<uint8_t>(text[position + i]); };
  const auto is_continuation = [&](std::size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xE1 && lead <= 0xEC) return is_continuation(1) && is_continuation(2) ? 3 : 0;
  return lead >= 0xC2 && lead <= 0xDF && is_continuation(1) ? 2 : 0;
}

}  // namespace

Utf8Step decode_utf8(std::string_view text, std::size_t position) {
  const auto byte = [&](std::size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(position);
  if (first < 0x80) return {.code_point = first, .length = 1, .valid = true};
  const Lead lead = classify(first);
  if (lead.more == 0) return {};
  char32_t value = first & (0x3F >> lead.more);
  for (std::size_t i = 1; i <= lead.more; ++i) {
    const uint8_t low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xBF;
    if (position + i >= text.size() || byte(position + i) < low || byte(position + i) > high)
      return {.length = i};
    value = value << 6 | (byte(position + i) & 0x3F);
  }
  return {.code_point = value, .length = lead.more + 1, .valid = true};
}

void append_utf8(std::string& out, char32_t code_point) {
  const bool surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  if (surrogate || code_point > 0x10FFFF) code_point = kReplacementCharacter;
  const auto put = [&out](char32_t bits) { out += static_cast<char>(bits); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

std::size_t valid_utf8_prefix(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    if (const std::size_t quick = quick_valid_bytes(text, i)) {
      i += quick;
      continue;
    }
    const Utf8Step step = decode_utf8(text, i);
    if (!step.valid) return i;
    i += step.length;
  }
  return text.size();
}

bool is_valid_utf8(std::string_view text) {
  return valid_utf8_prefix(text) == text.size();
}

std::size_t utf8_length(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size(); ++count) i += decode_utf8(text, i).length;
  return count;
}

std::u32string to_code_points(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Step step = decode_utf8(text, i);
    out += step.code_point;
    i += step.length;
  }
  return out;
}

std::string to_utf8(std::u32string_view code_points) {
  std::string out;
  out.reserve(code_points.size());
  for (const char32_t code_point : code_points) append_utf8(out, code_point);
  return out;
}

std::string replace_invalid_utf8(std::string_view text) {
  const std::size_t valid = valid_utf8_prefix(text);
  std::string out(text.substr(0, valid));
  for (std::size_t i = valid; i < text.size();) {
    const Utf8Step step = decode_utf8(text, i);
    append_utf8(out, step.code_point);
    i += step.length;
  }
  return out;
}

std::size_t incomplete_utf8_tail(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const std::size_t start = text.size() - back;
    if (classify(static_cast<uint8_t>(text[start])).more == 0) continue;
    const Utf8Step step = decode_utf8(text, start);
    return !step.valid && step.length == back ? back : 0;
  }
  return 0;
}

}  // namespace apus
