#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Python's view of text: code points over UTF-8 bytes.
/// Broken UTF-8 is never an error: a stray byte counts as one code point and is copied as it is.
namespace apus::data::jinja {

/// Decodes the code point at `pos` and moves `pos` past it; `pos` must be inside `text`.
uint32_t next_code_point(std::string_view text, size_t& pos);
/// Appends a code point as UTF-8; what next_code_point made of a stray byte becomes that byte again.
void append_code_point(std::string& out, uint32_t code_point);
std::vector<uint32_t> decode(std::string_view text);

size_t count_code_points(std::string_view text);
/// Bytes before the code point of that index; the length of `text` where it is past the end.
size_t byte_offset(std::string_view text, size_t index);
bool is_ascii(std::string_view text);

/// What str.isspace and the regular expression \s take for white space.
bool is_space(uint32_t code_point);
/// What str.splitlines ends a line at.
bool is_line_end(uint32_t code_point);
/// True where repr shows a code point as it is.
bool is_printable(uint32_t code_point);
bool is_alpha(uint32_t code_point);
bool is_decimal(uint32_t code_point);
bool is_digit(uint32_t code_point);
bool is_numeric(uint32_t code_point);
bool is_alnum(uint32_t code_point);
bool is_lower(uint32_t code_point);
bool is_upper(uint32_t code_point);
bool is_title(uint32_t code_point);
/// True where an identifier may start or, with `first` false, go on with it.
bool is_identifier(uint32_t code_point, bool first);

/// Which ends of a text to strip.
enum class Side { kBoth, kLeft, kRight };
/// Strips white space.
std::string_view strip(std::string_view text, Side side);
/// Strips any of the code points in `chars`.
std::string_view strip(std::string_view text, std::string_view chars, Side side);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
/// First code point in title case, the rest in lower case.
std::string capitalize(std::string_view text);
/// str.title: each run of cased letters capitalised.
std::string to_title(std::string_view text);
std::string swap_case(std::string_view text);
std::string case_fold(std::string_view text);

/// The lines of a text without their ends, or with them.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

}  // namespace apus::data::jinja
