#pragma once

#include <string>
#include <string_view>

#include "apus/base/env.h"

namespace apus::cli {

/// Whether standard output is a terminal that takes colours: not a pipe or a file, no NO_COLOR, no TERM=dumb.
bool colours_wanted(const Environment& environment);

/// Whether standard output is a terminal on which a line can be drawn anew: no pipe or file, no TERM=dumb.
bool progress_wanted(const Environment& environment);

/// Whether the locale's character set is UTF-8 (LC_ALL, else LC_CTYPE, else LANG).
bool speaks_utf8(const Environment& environment);

/// Columns of the terminal at standard output now; 80 if it does not say.
int terminal_columns();

/// Writes bytes to standard output as they are. What cannot be written is dropped: a bar is no result.
void write_terminal(std::string_view bytes);

/// A text that may come from anywhere, made fit to be shown: control characters other than newline and tab,
/// by which it could drive the terminal, become \xNN, and what is no UTF-8 becomes U+FFFD.
std::string harmless(std::string_view text);

}  // namespace apus::cli
