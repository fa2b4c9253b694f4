#include "data/jinja_unicode.h"

#include <utf8proc.h>

#include <algorithm>

#include "data/jinja_case_table.h"

namespace apus::data::jinja {
namespace {

constexpr uint32_t kStrayByte = 0xDC00;  // + the byte, as Python's surrogateescape

// Length of a well-formed sequence at pos, 0 where it is broken.
size_t sequence_length(std::string_view text, size_t pos) {
  const auto lead = static_cast<unsigned char>(text[pos]);
  const size_t length = lead < 0x80   ? 1
                        : lead < 0xC2 ? 0
                        : lead < 0xE0 ? 2
                        : lead < 0xF0 ? 3
                        : lead < 0xF5 ? 4
                                      : 0;
  if (length == 0 || pos + length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[pos + i]) & 0xC0) != 0x80) return 0;
  }
  return length;
}

utf8proc_category_t category(uint32_t cp) {
  return cp < 0x110000 ? utf8proc_category(static_cast<utf8proc_int32_t>(cp)) : UTF8PROC_CATEGORY_CN;
}

void append_upper(std::string& out, uint32_t cp) {
  if (const SpecialCase* special = find_special_case(cp)) {
    out += special->upper;
  } else {
    append_code_point(out, static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(cp))));
  }
}

void append_title(std::string& out, uint32_t cp) {
  if (const SpecialCase* special = find_special_case(cp)) {
    out += special->title;
  } else {
    append_code_point(out, static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(cp))));
  }
}

bool is_cased(uint32_t cp) {
  return is_lower(cp) || is_upper(cp) || is_title(cp);
}

// Marks and modifiers that the rule for a final sigma looks through.
bool is_case_ignorable(uint32_t cp) {
  const auto c = category(cp);
  return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_ME || c == UTF8PROC_CATEGORY_CF ||
         c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_SK || cp == '\'' || cp == '.' || cp == ':' ||
         cp == 0xB7 || cp == 0x2019;
}

bool is_final_sigma(const std::vector<uint32_t>& cps, size_t index) {
  size_t before = index;
  while (before > 0 && is_case_ignorable(cps[before - 1])) --before;
  if (before == 0 || !is_cased(cps[before - 1])) return false;
  size_t after = index + 1;
  while (after < cps.size() && is_case_ignorable(cps[after])) ++after;
  return after == cps.size() || !is_cased(cps[after]);
}

void append_lower(std::string& out, const std::vector<uint32_t>& cps, size_t index) {
  const uint32_t cp = cps[index];
  if (cp == 0x130) {
    out += "i\xCC\x87";
  } else if (cp == 0x3A3) {
    append_code_point(out, is_final_sigma(cps, index) ? 0x3C2 : 0x3C3);
  } else {
    append_code_point(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(cp))));
  }
}

bool contains(const std::vector<uint32_t>& cps, uint32_t cp) {
  return std::find(cps.begin(), cps.end(), cp) != cps.end();
}

// The start of the code point that ends before `end`.
size_t previous_start(std::string_view text, size_t begin, size_t end) {
  for (size_t length = std::min<size_t>(4, end - begin); length > 1; --length) {
    if (sequence_length(text, end - length) == length) return end - length;
  }
  return end - 1;
}

template <typename Drop>
std::string_view strip_if(std::string_view text, Side side, Drop drop) {
  size_t begin = 0;
  size_t end = text.size();
  while (side != Side::kRight && begin < end) {
    size_t next = begin;
    if (!drop(next_code_point(text, next))) break;
    begin = next;
  }
  while (side != Side::kLeft && begin < end) {
    const size_t start = previous_start(text, begin, end);
    size_t next = start;
    if (!drop(next_code_point(text, next))) break;
    end = start;
  }
  return text.substr(begin, end - begin);
}

}  // namespace

uint32_t next_code_point(std::string_view text, size_t& pos) {
  const auto byte = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<unsigned char>(text[pos + i]));
  };
  const uint32_t lead = byte(0);
  uint32_t cp = lead;
  const size_t length = sequence_length(text, pos);
  if (length == 0) {
    cp = kStrayByte + lead;
  } else if (length == 2) {
    cp = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
  } else if (length == 3) {
    cp = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  } else if (length == 4) {
    cp = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
  pos += std::max<size_t>(length, 1);
  return cp;
}

void append_code_point(std::string& out, uint32_t cp) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (cp < 0x80) {
    put(cp);
  } else if (cp < 0x800) {
    put(0xC0 | cp >> 6);
    put(0x80 | (cp & 0x3F));
  } else if (cp >= kStrayByte + 0x80 && cp <= kStrayByte + 0xFF) {
    put(cp - kStrayByte);
  } else if (cp < 0x10000) {
    put(0xE0 | cp >> 12);
    put(0x80 | (cp >> 6 & 0x3F));
    put(0x80 | (cp & 0x3F));
  } else {
    put(0xF0 | cp >> 18);
    put(0x80 | (cp >> 12 & 0x3F));
    put(0x80 | (cp >> 6 & 0x3F));
    put(0x80 | (cp & 0x3F));
  }
}

std::vector<uint32_t> decode(std::string_view text) {
  std::vector<uint32_t> cps;
  cps.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) cps.push_back(next_code_point(text, pos));
  return cps;
}

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for (size_t pos = 0; pos < text.size(); ++count) {
    pos += std::max<size_t>(sequence_length(text, pos), 1);
  }
  return count;
}

size_t byte_offset(std::string_view text, size_t index) {
  size_t pos = 0;
  for (; index > 0 && pos < text.size(); --index) pos += std::max<size_t>(sequence_length(text, pos), 1);
  return pos;
}

bool is_ascii(std::string_view text) {
  unsigned char all = 0;
  for (const char c : text) all |= static_cast<unsigned char>(c);
  return all < 0x80;
}

bool is_space(uint32_t cp) {
  if (cp < 0x80) return cp == ' ' || (cp >= 0x09 && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1F);
  return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 ||
         cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

bool is_line_end(uint32_t cp) {
  return (cp >= 0x0A && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 ||
         cp == 0x2029;
}

bool is_printable(uint32_t cp) {
  if (cp < 0x7F) return cp >= 0x20;
  switch (category(cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_alpha(uint32_t cp) {
  const auto c = category(cp);
  return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(uint32_t cp) {
  return category(cp) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(uint32_t cp) {
  return is_decimal(cp) || cp == 0xB2 || cp == 0xB3 || cp == 0xB9 || cp == 0x2070 ||
         (cp >= 0x2074 && cp <= 0x2079) || (cp >= 0x2080 && cp <= 0x2089) || (cp >= 0x2460 && cp <= 0x2468);
}

bool is_numeric(uint32_t cp) {
  const auto c = category(cp);
  return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool is_alnum(uint32_t cp) {
  return is_alpha(cp) || is_numeric(cp);
}
bool is_lower(uint32_t cp) {
  return category(cp) == UTF8PROC_CATEGORY_LL || cp == 0xAA || cp == 0xBA;
}
bool is_upper(uint32_t cp) {
  return category(cp) == UTF8PROC_CATEGORY_LU;
}
bool is_title(uint32_t cp) {
  return category(cp) == UTF8PROC_CATEGORY_LT;
}

bool is_identifier(uint32_t cp, bool first) {
  if (cp == '_' || is_alpha(cp)) return true;
  const auto c = category(cp);
  if (c == UTF8PROC_CATEGORY_NL) return true;
  return !first && (c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC ||
                    c == UTF8PROC_CATEGORY_PC);
}

std::string_view strip(std::string_view text, Side side) {
  return strip_if(text, side, is_space);
}

std::string_view strip(std::string_view text, std::string_view chars, Side side) {
  const std::vector<uint32_t> set = decode(chars);
  return strip_if(text, side, [&](uint32_t cp) { return contains(set, cp); });
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) append_upper(out, next_code_point(text, pos));
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out(text);
  if (is_ascii(text)) {
    for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    return out;
  }
  out.clear();
  const std::vector<uint32_t> cps = decode(text);
  for (size_t i = 0; i < cps.size(); ++i) append_lower(out, cps, i);
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  const std::vector<uint32_t> cps = decode(text);
  for (size_t i = 0; i < cps.size(); ++i) {
    if (i == 0) {
      append_title(out, cps[i]);
    } else {
      append_lower(out, cps, i);
    }
  }
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  const std::vector<uint32_t> cps = decode(text);
  bool in_word = false;
  for (size_t i = 0; i < cps.size(); ++i) {
    if (in_word) {
      append_lower(out, cps, i);
    } else {
      append_title(out, cps[i]);
    }
    in_word = is_cased(cps[i]);
  }
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  const std::vector<uint32_t> cps = decode(text);
  for (size_t i = 0; i < cps.size(); ++i) {
    if (is_upper(cps[i])) {
      append_lower(out, cps, i);
    } else if (is_lower(cps[i])) {
      append_upper(out, cps[i]);
    } else {
      append_code_point(out, cps[i]);
    }
  }
  return out;
}

std::string case_fold(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const uint32_t cp = next_code_point(text, pos);
    if (find_special_case(cp) != nullptr && is_lower(cp)) {
      out += to_lower(find_special_case(cp)->upper);  // sharp s and the ligatures unfold
    } else {
      append_code_point(
          out, cp == 0x3C2 ? 0x3C3u : static_cast<uint32_t>(utf8proc_tolower(static_cast<int32_t>(cp))));
    }
  }
  return out;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = pos;
    const uint32_t cp = next_code_point(text, pos);
    if (!is_line_end(cp)) continue;
    if (cp == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    lines.push_back(text.substr(start, (keep_ends ? pos : end) - start));
    start = pos;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

}  // namespace apus::data::jinja
