#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/jinja_objects.h"

/// Taking texts apart and together, for methods and filters alike. A negative limit is none.
namespace apus::data::jinja {

/// At runs of white space, which are dropped at both ends.
std::vector<std::string_view> split_spaces(std::string_view text, int64_t limit);
std::vector<std::string_view> split_spaces_right(std::string_view text, int64_t limit);
/// At a separator that is not empty.
std::vector<std::string_view> split(std::string_view text, std::string_view separator, int64_t limit);
std::vector<std::string_view> split_right(std::string_view text, std::string_view separator, int64_t limit);

/// str.replace; an empty `old` stands between any two code points.
std::string replace(Runtime& runtime, std::string_view text, std::string_view old, std::string_view with,
                    int64_t limit);

/// str.islower and str.isupper: some cased letter, and all of them of that case.
bool is_lower_case(std::string_view text);
bool is_upper_case(std::string_view text);

}  // namespace apus::data::jinja
