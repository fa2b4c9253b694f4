#include "data/normalize_text.h"

#include <algorithm>

#include "data/aligned_writer.h"
#include "data/bpe_vocabulary.h"
#include "data/older_unicode.h"
#include "data/unicode_classes.h"

namespace apus::data {
namespace {

template <typename Visit>
void each_character(std::string_view text, Visit&& visit) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text.data() + at);
    visit(point, at);
    at += point.length;
  }
}

template <typename Predicate>
bool any_character(std::string_view text, Predicate&& holds) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text.data() + at);
    if (holds(point.value)) return true;
    at += point.length;
  }
  return false;
}

bool is_space_at(std::string_view text, const char* at) {
  return unicode_class(code_point_at(at).value).is_space();
}

// The bytes between white space at the sides that are to go.
ByteRange stripped(std::string_view text, StripSides sides) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  while (sides.left && begin < end && is_space_at(text, begin)) begin += code_point_at(begin).length;
  while (sides.right && end > begin) {
    const char* last = code_point_before(begin, end);
    if (!is_space_at(text, last)) break;
    end = last;
  }
  return {static_cast<uint32_t>(begin - text.data()), static_cast<uint32_t>(end - text.data())};
}

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0x2F800 && c <= 0x2FA1F);
}

constexpr char32_t kCapitalIWithDot = 0x130;

}  // namespace

bool PrependNormalizer::keeps(std::string_view text) const {
  return text.empty() || prefix_.empty();
}

void PrependNormalizer::apply(AlignedText& text) const {
  if (keeps(text.text)) return;
  AlignedWriter out(text);
  out.put(prefix_, 0);
  out.copy(0, text.text.size());
  text = out.finish();
}

bool ReplaceNormalizer::keeps(std::string_view text) const {
  if (!literal_.empty()) return text.find(literal_) == std::string_view::npos;
  std::vector<PatternPart> parts;
  if (!text.empty()) finder_(text, parts);
  return std::none_of(parts.begin(), parts.end(), [](const PatternPart& part) { return part.is_match; });
}

void ReplaceNormalizer::apply(AlignedText& text) const {
  if (text.text.empty()) return;
  std::vector<PatternPart> parts;
  finder_(text.text, parts);
  AlignedWriter out(text);
  for (const PatternPart& part : parts) {
    if (part.is_match)
      out.insert(content_, part.range.end);
    else
      out.copy(part.range.begin, part.range.end);
  }
  text = out.finish();
}

bool StripNormalizer::keeps(std::string_view text) const {
  return stripped(text, sides_) == ByteRange{0, static_cast<uint32_t>(text.size())};
}

void StripNormalizer::apply(AlignedText& text) const {
  const ByteRange kept = stripped(text.text, sides_);
  AlignedWriter out(text);
  out.copy(kept.begin, kept.end);
  text = out.finish();
}

bool LowercaseNormalizer::keeps(std::string_view text) const {
  return !any_character(text, [](char32_t c) { return older_lower(c) != c || c == kCapitalIWithDot; });
}

void LowercaseNormalizer::apply(AlignedText& text) const {
  AlignedWriter out(text);
  each_character(text.text, [&](CodePoint point, size_t at) {
    if (point.value == kCapitalIWithDot)
      out.put("i\u0307", at);
    else
      out.put(older_lower(point.value), at);
  });
  text = out.finish();
}

bool CharacterNormalizer::keeps(std::string_view text) const {
  return !any_character(text, [this](char32_t c) { return map_(c) != c; });
}

void CharacterNormalizer::apply(AlignedText& text) const {
  AlignedWriter out(text);
  each_character(text.text, [&](CodePoint point, size_t at) {
    const char32_t becomes = map_(point.value);
    if (becomes != kDropped) out.put(becomes, at);
  });
  text = out.finish();
}

char32_t without_mark(char32_t code_point) {
  return is_older_mark(code_point) ? CharacterNormalizer::kDropped : code_point;
}

char32_t without_nonspacing_mark(char32_t code_point) {
  return is_older_nonspacing_mark(code_point) ? CharacterNormalizer::kDropped : code_point;
}

char32_t nmt_character(char32_t c) {
  if ((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F ||
      c == 0x9F)
    return CharacterNormalizer::kDropped;
  const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                     (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                     c == 0xFEFF || c == 0xFFFD;
  return space ? U' ' : c;
}

char32_t clean_character(char32_t code_point) {
  if (is_older_control(code_point)) return CharacterNormalizer::kDropped;
  return unicode_class(code_point).is_space() ? U' ' : code_point;
}

bool ChineseSpacesNormalizer::keeps(std::string_view text) const {
  return !any_character(text, is_chinese);
}

// The space before a character takes that one's place, so it stands for it; the character and the space
// behind it stand for it too.
void ChineseSpacesNormalizer::apply(AlignedText& text) const {
  AlignedWriter out(text);
  each_character(text.text, [&](CodePoint point, size_t at) {
    if (is_chinese(point.value)) out.put(" ", at);
    out.copy(at, at + point.length);
    if (is_chinese(point.value)) out.put(" ", at);
  });
  text = out.finish();
}

bool ByteLevelNormalizer::keeps(std::string_view text) const {
  std::string spelled;
  append_byte_level(spelled, text);
  return spelled == text;
}

void ByteLevelNormalizer::apply(AlignedText& text) const {
  AlignedWriter out(text);
  std::string name;
  for (size_t at = 0; at < text.text.size(); ++at) {
    name.clear();
    append_byte_level(name, std::string_view(text.text).substr(at, 1));
    out.put(name, at);
  }
  text = out.finish();
}

}  // namespace apus::data
