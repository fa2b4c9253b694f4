#pragma once

#include <string>
#include <string_view>
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

/// Whether a command trains, and so may have several ranks: dpo, rlhf, sft, pt, train.
bool trains(std::string_view command);

/// A training command: as one rank, or starting the ranks that NPROC_PER_NODE asks for. Returns the exit
/// code.
int run_training(const Call& call);

/// Ranks of a job that is to be started, and of this machine.
struct WorldSize {
  int world = 1;
  int local_world = 1;
};

/// Checks the flags of a training command for a world of that size, reading no model; of the data `apus
/// train` reads the first rows. Throws: ConfigError, NotSupported, as run_training() would in every rank.
void check_training(const Call& call, const WorldSize& size);

/// `apus launch ... -- COMMAND ...`. Returns the exit code.
int run_launch(const Call& call);

}  // namespace apus::cli
