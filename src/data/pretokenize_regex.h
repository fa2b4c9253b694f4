#pragma once

#include <string>
#include <string_view>

#include "data/pretokenize.h"

namespace apus::data {

/// The same pattern for PCRE2: classes that depend on the Unicode version (\s \d \w \h \p{L} \p{Lu} ...) are
/// written out from the library's own table, and escapes that PCRE2 spells otherwise are respelt. Throws:
/// NotSupported, with `source`, for syntax that PCRE2 would take otherwise (class intersections, nested
///              classes, POSIX brackets).
std::string rewrite_for_pcre2(std::string_view pattern, const std::string& source);

/// Finds a regular expression of the tokenizers library's dialect, compiled by PCRE2 (with JIT).
/// The pattern is untrusted: each search has limits on steps and memory.
/// Throws:      NotSupported, with `source`, if PCRE2 does not take the pattern; the finder throws it where a
/// text
///              exceeds the limits.
PatternFinder find_regex(const std::string& pattern, const std::string& source);

}  // namespace apus::data
