#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/base/device.h"
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

/// Turns parsed flags into a job.
/// Throws:      ConfigError, NotSupported naming the flag.
APUS_API TrainingCommand read_training_command(const FlagValues& values, const FlagTable& table);

/// Parses and reads in one go.
APUS_API TrainingCommand parse_training_command(const std::vector<std::string>& arguments);

/// Decides between CPU and GPU: the line to say, such as "Training on the CPU: --ddp_backend gloo".
/// Throws:      ConfigError if there are GPUs whose driver cannot be used, or nccl is wanted without a GPU,
/// each
///              with the remedy; NotSupported if GPUs could be used, which this build cannot train on.
APUS_API std::string choose_device(const TrainingCommand& command, const DeviceSurvey& survey);

/// Refuses what only makes sense with several ranks, or without them.
/// Throws:      ConfigError for `--device_map` with one rank.
APUS_API void check_world(const TrainingCommand& command, int world);

}  // namespace apus::cli
