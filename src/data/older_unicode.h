#pragma once

#include <span>

#include "data/unicode_classes.h"

namespace apus::data {

// What the parts of the tokenizers library take characters for: each has tables of some Unicode version of
// its own, and none of them is the one of its regular expressions. Generated from what the library does.

/// A mark that StripAccents takes out.
bool is_older_mark(char32_t code_point);
/// A mark that BertNormalizer takes out with strip_accents.
bool is_older_nonspacing_mark(char32_t code_point);
/// What BertNormalizer's clean_text takes out.
bool is_older_control(char32_t code_point);
/// A delimiter of Punctuation: P*, and the ASCII symbols.
bool is_older_punctuation(char32_t code_point);
/// A number of Digits: Nd, Nl, No.
bool is_digits_number(char32_t code_point);
/// \w of the engine that Whitespace uses.
bool in_regex_word(char32_t code_point);
/// The same as ranges, in order.
std::span<const CodePointRange> regex_word_ranges();
/// Whether NFKD changes the code point.
bool has_older_compatibility(char32_t code_point);
/// Whether NFD changes it.
bool has_older_canonical(char32_t code_point);
/// Lower case, but of U+0130, whose lower case is two code points (i and U+0307): it stays itself.
char32_t older_lower(char32_t code_point);

}  // namespace apus::data
