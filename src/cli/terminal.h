#pragma once

#include <string>
#include <string_view>

#include "apus/base/env.h"

namespace apus::cli {

/// Whether standard output is a terminal that takes colours: not a pipe or a file, no NO_COLOR, no TERM=dumb.
bool colours_wanted(const Environment& environment);

/// A text that may come from anywhere, made fit to be shown: control characters other than newline and tab,
/// by which it could drive the terminal, become \xNN, and what is no UTF-8 becomes U+FFFD.
std::string harmless(std::string_view text);

}  // namespace apus::cli
