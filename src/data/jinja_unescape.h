#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace apus::data::jinja {

/// \r\n and \r become \n.
std::string normalize_newlines(std::string_view text);

/// The content of a string literal with its escapes replaced as Python does; unknown escapes stay.
/// Nothing where an escape is broken, with the reason in `reason`.
std::optional<std::string> unescape(std::string_view body, std::string& reason);

}  // namespace apus::data::jinja
