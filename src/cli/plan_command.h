#pragma once

#include "apus/cli/flag_table.h"
#include "cli/training_run.h"

namespace apus::cli {

/// The flags of `apus plan`: those of the training commands, and which cards and how many ranks to plan for.
FlagTable plan_flags();

/// `apus plan [dpo|sft|pt] ...`: with the flags of a training command unchanged, prints what each rank will
/// hold, term by term, and how long a step takes; for `--card NAME` also other ways to run the job, ranked.
/// Needs config.json of --model, neither weights nor GPUs; where --dataset and the tokenizer are there, the
/// lengths are those of the rows, else --max_length. Returns the exit code.
int run_plan(const Call& call);

}  // namespace apus::cli
