#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apus/base/device.h"
#include "apus/cli/training_command.h"
#include "apus/comm/launch_environment.h"
#include "cli/env_facts.h"

namespace apus::cli {

/// What decides where a rank trains, beside its flags.
struct DeviceFacts {
  DeviceSurvey survey = {};
  /// As far as the driver describes them.
  std::vector<GpuFacts> gpus = {};
  /// The program was built with CUDA.
  bool has_cuda = false;
  /// library_fault's; empty: all serve.
  std::string library_fault = {};
  /// This rank among those of its machine; the first stands for all where ranks are still to be started.
  int local_rank = 0;
  int local_world_size = 1;
};

/// Where a rank trains.
struct DeviceChoice {
  /// Among the GPUs that the process sees; none: the CPU.
  std::optional<int> gpu = {};
  /// For the log: "Training on the CPU: --ddp_backend gloo".
  std::string sentence = {};
  std::vector<std::string> warnings = {};
};

/// Asks the machine.
DeviceFacts read_device_facts(const Environment& environment);

/// What a run with these flags would train on here, as far as defaults depend on it; refuses nothing.
train::JobDevice likely_device(const TrainingCommand& command, const DeviceFacts& facts);

/// Decides between CPU and GPU: a usable GPU is taken, that of the local rank, unless --ddp_backend gloo asks
/// for the CPU. Throws:      ConfigError if there are GPUs whose driver, libraries or age do not serve, fewer
/// GPUs than local
///              ranks, or nccl is wanted without a GPU, each with the remedy; NotSupported if GPUs could be
///              used, but this program was built without CUDA.
DeviceChoice choose_device(const TrainingCommand& command, const DeviceFacts& facts);

}  // namespace apus::cli
