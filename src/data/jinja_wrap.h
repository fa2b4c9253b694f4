#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace apus::data::jinja {

/// How a paragraph is wrapped; as Python's textwrap.wrap with tabs and white space left alone.
struct WrapStyle {
  int64_t width = 79;
  bool break_long_words = true;
  bool break_on_hyphens = true;
};

/// The lines of one paragraph.
std::vector<std::string> wrap_line(std::string_view text, const WrapStyle& style);

/// Text without SGML tags and comments, runs of white space made one space.
std::string strip_tags(std::string_view text);

/// Percent encoding of all bytes but letters, digits, _ . - ~ and those in `safe`.
/// With `plus` set to a character, that one becomes +.
std::string percent_encode(std::string_view text, std::string_view safe, char plus = '\0');

}  // namespace apus::data::jinja
