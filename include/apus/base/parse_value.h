#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/api.h"

namespace apus {

/// true/false/1/0/yes/no/on/off in any case. `key` is the flag or variable named in errors.
/// Throws:      ConfigError.
APUS_API bool parse_bool(std::string_view key, std::string_view text);

/// A whole decimal integer, nothing before or after it.
/// Throws:      ConfigError, also when it does not fit 64 bits.
APUS_API int64_t parse_int(std::string_view key, std::string_view text);

/// A whole finite decimal number such as 5e-5, nothing before or after it.
/// Throws:      ConfigError.
APUS_API double parse_double(std::string_view key, std::string_view text);

/// Splits at commas and white space; empty parts are left out.
APUS_API std::vector<std::string> split_list(std::string_view text);

}  // namespace apus
