#pragma once

#include <memory>

#include "apus/base/log.h"

namespace apus::cli {

/// Information on standard output, as it is; warnings and errors on standard error. Ranks other than 0 put
/// their number before the latter.
std::shared_ptr<Logger> make_rank_console(int rank);

}  // namespace apus::cli
