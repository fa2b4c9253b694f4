#pragma once

#include <string>
#include <vector>

#include "apus/base/env.h"

namespace apus::cli {

/// How the program was called.
struct Call {
  std::vector<std::string> arguments;  ///< all of them, the command's name first: what other ranks get too
  Environment environment;

  /// Those behind the command's name.
  std::vector<std::string> flags() const { return {arguments.begin() + 1, arguments.end()}; }
};

/// `apus dpo`, and `apus rlhf` and `apus train` for preference data: as one rank, or starting the ranks that
/// NPROC_PER_NODE asks for. Returns the exit code.
int run_training(const Call& call);

/// Checks the flags of a training command for a world of that size, reading no model and no data.
/// Throws: ConfigError, NotSupported, as run_training() would in every rank.
void check_training(const Call& call, int world);

/// `apus launch ... -- COMMAND ...`. Returns the exit code.
int run_launch(const Call& call);

}  // namespace apus::cli
