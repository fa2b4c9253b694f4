#include "tests/bench/bench_ranks.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <utility>

#include "apus/base/clock.h"
#include "apus/base/error.h"
#include "apus/base/log.h"
#include "apus/comm/gloo_communicator.h"
#include "apus/comm/nccl_communicator.h"
#include "apus/launch/local_launcher.h"

namespace apus::bench {
namespace {

std::shared_ptr<Logger> warnings() {
  return make_console_logger({.level = LogLevel::kWarning, .stream = ConsoleStream::kStderr});
}

}  // namespace

bool is_rank(const Environment& environment) {
  return environment.has("RANK") && environment.has("WORLD_SIZE");
}

int start_ranks(int ranks, const Words& words, const Environment& environment) {
  SystemClock clock;
  const std::shared_ptr<Logger> logger = warnings();
  const launch::LaunchResult result =
      launch::LocalLauncher({.program = std::filesystem::read_symlink("/proc/self/exe"),
                             .arguments = words,
                             .environment = environment,
                             .nproc_per_node = ranks,
                             .grace = std::chrono::seconds(1)},
                            clock, logger)
          .run();
  if (!result.first_cause.empty()) logger->error(result.first_cause);
  return result.exit_code;
}

c10::Device take_device(const std::string& kind, int local_rank) {
  c10::Device device(kind);
  if (device.is_cpu()) return device;
  APUS_CHECK(at::hasCUDA(), NotSupported, "device=", kind,
             ": this benchmark was built without CUDA, or there is no GPU; give device=cpu");
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  const c10::impl::VirtualGuardImpl gpus(c10::DeviceType::CUDA);
  APUS_CHECK(local_rank < gpus.deviceCount(), NotSupported, "local rank ", local_rank,
             " needs a GPU of its own, and ", static_cast<int>(gpus.deviceCount()), " are here");
  device = c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(local_rank));
  gpus.setDevice(device);
  return device;
}

void wait_for(c10::Device device) {
  if (device.is_cuda()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

std::vector<double> JoinedRanks::of_all(double own) const {
  const at::Tensor all = at::empty({figures->size()}, at::kDouble);
  figures->all_gather(all, at::full({1}, own, at::kDouble))->wait();
  const double* values = all.const_data_ptr<double>();
  return {values, values + figures->size()};
}

double JoinedRanks::most(double own) const {
  const std::vector<double> all = of_all(own);
  return *std::max_element(all.begin(), all.end());
}

JoinedRanks join_ranks(const comm::LaunchEnvironment& launch, c10::Device device,
                       std::chrono::milliseconds timeout) {
  const std::shared_ptr<comm::Store> store = comm::rendezvous(launch, {.timeout = timeout});
  std::shared_ptr<comm::Communicator> host = comm::GlooCommunicator::create(
      store, {.rank = launch.rank, .size = launch.world_size, .timeout = timeout, .logger = warnings()});
  std::vector<int> everyone(static_cast<size_t>(launch.world_size));
  std::iota(everyone.begin(), everyone.end(), 0);
  JoinedRanks ranks{.world = host, .figures = host->subgroup(everyone, "figures")};
  if (device.is_cuda()) {
    ranks.world = comm::NcclCommunicator::create(
        std::move(host), {.device = device.index(), .group_of_one = comm::GroupOfOne::kNccl});
  }
  return ranks;
}

}  // namespace apus::bench
