#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "comm/nccl_group.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/rank_threads.h"

namespace apus::testing {

/// A group over a fake of NCCL that looks often, and the Gloo group under it.
using NcclBody =
    std::function<void(std::shared_ptr<comm::Communicator> group, std::shared_ptr<comm::Communicator> host)>;

inline comm::NcclOptions quick_nccl(int device) {
  comm::NcclOptions options;
  options.device = device;
  options.group_of_one = comm::GroupOfOne::kNccl;
  options.shutdown_timeout = std::chrono::milliseconds(500);
  options.watch_every = std::chrono::milliseconds(5);
  return options;
}

/// Runs `body` as `size` ranks on `size` devices, a thread each.
inline void run_nccl(int size, FakeNccl& fake, const NcclBody& body, const RankThreadsOptions& options = {}) {
  const auto backend = fake.backend();
  run_ranks(
      size,
      [&](std::shared_ptr<comm::Communicator> host) {
        backend->device.exchange_device(host->rank());
        body(comm::make_nccl_group(host, quick_nccl(host->rank()), backend), host);
      },
      options);
}

}  // namespace apus::testing
