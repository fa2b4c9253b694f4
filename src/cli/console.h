#pragma once

#include <memory>

#include "apus/base/log.h"

namespace apus::cli {

/// Whether somebody else may have left an unfinished line on the terminal.
enum class OpenLine {
  kNone,
  /// Rank 0 draws a progress bar on the same terminal: it is cleared before a line is printed.
  kCleared,
};

/// Information on standard output; warnings and errors on standard error, behind their number for ranks other
/// than 0. Both through harmless(): lines quote rows and file names, which may hold anything.
std::shared_ptr<Logger> make_rank_console(int rank, OpenLine open_line = OpenLine::kNone);

}  // namespace apus::cli
