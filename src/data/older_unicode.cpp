#include "data/older_unicode.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace apus::data {
namespace {

// Code points first, first + step, ... last, whose lower case lies at that distance.
struct LowerRun {
  char32_t first;
  char32_t last;
  uint32_t step;
  int32_t distance;
};

#include "data/generated/older_unicode.inc"

template <size_t kCount>
bool is_in(const CodePointRange (&ranges)[kCount], char32_t code_point) {
  const auto after =
      std::upper_bound(std::begin(ranges), std::end(ranges), code_point,
                       [](char32_t code, const CodePointRange& range) { return code < range.first; });
  return after != std::begin(ranges) && std::prev(after)->second >= code_point;
}

}  // namespace

bool is_older_mark(char32_t code_point) {
  return is_in(kMarks, code_point);
}

bool is_older_nonspacing_mark(char32_t code_point) {
  return is_in(kNonspacingMarks, code_point);
}

bool is_older_control(char32_t code_point) {
  return is_in(kControls, code_point);
}

bool is_older_punctuation(char32_t code_point) {
  return is_in(kPunctuation, code_point);
}

bool is_digits_number(char32_t code_point) {
  return is_in(kNumbers, code_point);
}

bool in_regex_word(char32_t code_point) {
  return is_in(kWordCharacters, code_point);
}

std::span<const CodePointRange> regex_word_ranges() {
  return kWordCharacters;
}

bool has_older_compatibility(char32_t code_point) {
  return is_in(kCompatibility, code_point);
}

bool has_older_canonical(char32_t code_point) {
  return is_in(kCanonical, code_point);
}

char32_t older_lower(char32_t code_point) {
  const auto after = std::upper_bound(std::begin(kLowerRuns), std::end(kLowerRuns), code_point,
                                      [](char32_t code, const LowerRun& run) { return code < run.first; });
  if (after == std::begin(kLowerRuns)) return code_point;
  const LowerRun& run = *std::prev(after);
  if (code_point > run.last || (code_point - run.first) % run.step != 0) return code_point;
  return static_cast<char32_t>(static_cast<int32_t>(code_point) + run.distance);
}

}  // namespace apus::data
