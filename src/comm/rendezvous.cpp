#include "apus/base/error.h"
#include "apus/comm/launch_environment.h"

namespace apus::comm {

std::shared_ptr<Store> rendezvous(const LaunchEnvironment& launch, const RendezvousOptions& options) {
  APUS_CHECK(launch.source != LaunchSource::kSpawn, ConfigError,
             "this process starts ranks (NPROC_PER_NODE=", launch.spawn, ") and is not one of them");
  if (!launch.distributed() && !launch.use_agent_store) return make_hash_store();
  const bool serves = launch.rank == 0 && !launch.use_agent_store;
  APUS_CHECK(launch.master_port > 0, ConfigError, "MASTER_PORT is not set: ", launch.world_size,
             " ranks need a port to meet at");
  std::shared_ptr<Store> store = make_tcp_store({.host = launch.master_addr,
                                                 .port = launch.master_port,
                                                 .world = launch.world_size,
                                                 .is_server = serves,
                                                 .timeout = options.timeout});
  // torchrun's agent keeps its own keys in the same store; its name for an attempt's keys is kept.
  const std::string prefix =
      (launch.use_agent_store ? "/worker/attempt_" : "attempt_") + std::to_string(launch.restart_count);
  return make_prefix_store(prefix, std::move(store));
}

}  // namespace apus::comm
