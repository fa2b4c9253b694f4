#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "apus/base/api.h"

namespace apus {

/// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other.
/// Counts bytes; case matters here.
APUS_API int64_t edit_distance(std::string_view a, std::string_view b);

/// The candidate that a mistyped word most likely meant; nothing if none is near (more than a third of the
/// letters, at least 2, wrong). Case and the difference between '-' and '_' count less than other letters.
APUS_API std::optional<std::string> nearest_name(std::string_view word,
                                                 std::span<const std::string> candidates);

/// " (did you mean 'X'?)", or nothing: to be put behind an error message.
APUS_API std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

}  // namespace apus
