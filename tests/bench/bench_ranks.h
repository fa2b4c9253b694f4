#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "apus/base/env.h"
#include "apus/comm/communicator.h"
#include "apus/comm/launch_environment.h"

/// Benchmarks of several ranks: a program starts itself again, once a rank, by the project's own launcher.
namespace apus::bench {

using Words = std::vector<std::string>;

/// Whether a launcher has told this process its rank.
bool is_rank(const Environment& environment);

/// Runs this program as so many ranks on this machine, with these words; the exit code of the first that
/// failed. What failed goes to standard error.
int start_ranks(int ranks, const Words& words, const Environment& environment);

/// The device of this rank: the GPU of its local rank, which becomes the current one, or the CPU.
/// Throws:  NotSupported if there are fewer GPUs.
c10::Device take_device(const std::string& kind, int local_rank);

/// Returns when the device has done all it was given.
void wait_for(c10::Device device);

/// The ranks of a benchmark. Tensors go through `world`, figures of the benchmark itself through `figures`.
struct JoinedRanks {
  std::shared_ptr<comm::Communicator> world;
  std::shared_ptr<comm::Communicator> figures;

  /// One number of every rank, in rank order.
  std::vector<double> of_all(double own) const;
  double most(double own) const;
};

/// Meets the other ranks: Gloo, and NCCL (also in a world of one) where the device is a GPU.
JoinedRanks join_ranks(const comm::LaunchEnvironment& launch, c10::Device device,
                       std::chrono::milliseconds timeout);

}  // namespace apus::bench
