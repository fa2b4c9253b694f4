#pragma once

#include "apus/cli/flag_table.h"
#include "cli/training_run.h"

namespace apus::cli {

/// The flags of `apus data`: those of the training commands, and --result_path.
FlagTable data_command_flags();

/// `apus data ...`: reads the datasets as the training command with these flags would, and prints what they
/// hold; with --result_path as one JSON object in that file, too. Needs the tokenizer's files of --model
/// alone. Returns the exit code.
int run_data(const Call& call);

}  // namespace apus::cli
