#pragma once

#include <memory>

#include "apus/base/log.h"

namespace apus::cli {

/// Information on standard output; warnings and errors on standard error, behind their number for ranks other
/// than 0. Both through harmless(): lines quote rows and file names, which may hold anything.
std::shared_ptr<Logger> make_rank_console(int rank);

}  // namespace apus::cli
