#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace apus::data {

namespace detail {
#include "data/generated/unicode_classes.inc"
}  // namespace detail

/// General categories, in the order of the generated table. Unassigned code points and surrogates are kCn.
enum class Category : uint8_t {
  kCn,
  kCc,
  kCf,
  kCo,
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
};

/// The classes of one code point, as the regular expressions of the tokenizers library see them (Unicode 16),
/// and what its NFC (tables older than Unicode 11) has to look at.
class UnicodeClass final {
 public:
  constexpr explicit UnicodeClass(uint8_t bits) : bits_(bits) {}

  constexpr uint8_t bits() const { return bits_; }
  constexpr Category category() const { return static_cast<Category>(bits_ & 31); }
  constexpr bool is_letter() const { return in(Category::kLu, Category::kLo); }
  constexpr bool is_mark() const { return in(Category::kMn, Category::kMe); }
  constexpr bool is_number() const { return in(Category::kNd, Category::kNo); }
  /// One of the 25 code points with White_Space: \s.
  constexpr bool is_space() const { return (bits_ & 32) != 0; }
  /// Has a combining class other than 0.
  constexpr bool is_combining() const { return (bits_ & 64) != 0; }
  /// Decomposes and does not come back, or may compose with what stands before it.
  constexpr bool is_nfc_unsure() const { return (bits_ & 128) != 0; }
  /// Neither: whatever stands before such a code point, NFC does not move anything across its left side.
  constexpr bool is_nfc_boundary() const { return (bits_ & 192) == 0; }

 private:
  constexpr bool in(Category first, Category last) const { return category() >= first && category() <= last; }
  uint8_t bits_;
};

/// The classes of a code point; those above U+10FFFF have none.
inline UnicodeClass unicode_class(char32_t code_point) {
  if (code_point > 0x10FFFF) return UnicodeClass(0);
  const uint32_t block = detail::kBlockOf[code_point >> detail::kBlockBits];
  const uint32_t within = code_point & ((1U << detail::kBlockBits) - 1);
  return UnicodeClass(detail::kBlocks[block << detail::kBlockBits | within]);
}

/// \w of the engine that decides where a single-word token may stand: letters, marks, digits, letter numbers,
/// connectors, the two joiners and the circled or squared letters.
bool is_word_character(char32_t code_point);

/// First and last code point of a range.
using CodePointRange = std::pair<char32_t, char32_t>;

/// The ranges of a property by the name that regular expressions use: a category ("Lu"), a group of them
/// ("L", "Letter"), or the escapes "s", "d" and "w". Empty for an unknown name.
std::vector<CodePointRange> property_ranges(std::string_view name);

/// A code point of valid UTF-8 and its length in bytes.
struct CodePoint {
  char32_t value;
  uint32_t length;
};

/// The code point at `at`, for text known to be valid: nothing is checked.
inline CodePoint code_point_at(const char* at) {
  const auto byte = [at](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(at[i])); };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 31) << 6 | (byte(1) & 63), 2};
  if (first < 0xF0) return {(first & 15) << 12 | (byte(1) & 63) << 6 | (byte(2) & 63), 3};
  return {(first & 7) << 18 | (byte(1) & 63) << 12 | (byte(2) & 63) << 6 | (byte(3) & 63), 4};
}

/// Where the code point that ends before `end` starts, for valid text with `end` > `begin`.
inline const char* code_point_before(const char* begin, const char* end) {
  do {
    --end;
  } while (end > begin && (static_cast<unsigned char>(*end) & 0xC0) == 0x80);
  return end;
}

}  // namespace apus::data
