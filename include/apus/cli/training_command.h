#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/api.h"
#include "apus/cli/flag_values.h"
#include "apus/train/job.h"

namespace apus::cli {

/// What the flags of a training command ask for.
struct APUS_API TrainingCommand {
  /// The job, not resolved yet.
  train::JobOptions job = {};
  /// `--ddp_backend`; empty if not given.
  std::string ddp_backend = {};
  /// `--device_map`; empty if not given.
  std::string device_map = {};
  /// Lines to be said once: flags without effect.
  std::vector<std::string> notes = {};
  /// Lines to be said once as warnings.
  std::vector<std::string> warnings = {};
};

/// The task that a command's name says: "dpo" (rlhf too), "sft" or "pt"; empty where the data's columns say
/// it.
APUS_API std::string task_of_command(std::string_view command);

/// Turns parsed flags into a job, whose task is still open.
/// Throws:      ConfigError, NotSupported naming the flag.
APUS_API TrainingCommand read_training_command(const FlagValues& values, const FlagTable& table);

/// Gives the job its task ("dpo", "sft", "pt").
/// Throws:      ConfigError for a flag that was given, otherwise than at its default, and that the task or
/// the
///              --train_type has no use for.
APUS_API void settle_task(TrainingCommand& command, const FlagValues& values, const FlagTable& table,
                          const std::string& task);

/// Parses, reads and settles in one go.
APUS_API TrainingCommand parse_training_command(const std::vector<std::string>& arguments,
                                                const std::string& task = "dpo");

/// Refuses what only makes sense with several ranks, or without them.
/// Throws:      ConfigError for `--device_map` with one rank.
APUS_API void check_world(const TrainingCommand& command, int world);

}  // namespace apus::cli
