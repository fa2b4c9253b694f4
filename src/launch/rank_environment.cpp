#include "launch/rank_environment.h"

#include "apus/launch/cpu_share.h"
#include "apus/launch/rank_error.h"

namespace apus::launch {

Environment rank_environment(const LaunchOptions& options, const AttemptPlace& place, int local_rank) {
  const int ranks = options.nproc_per_node;
  Environment environment = options.environment;
  const auto put = [&environment](const char* name, int value) {
    environment.set(name, std::to_string(value));
  };
  put("RANK", options.node_rank * ranks + local_rank);
  put("LOCAL_RANK", local_rank);
  put("WORLD_SIZE", options.nnodes * ranks);
  put("LOCAL_WORLD_SIZE", ranks);
  put("GROUP_RANK", options.node_rank);
  put("NODE_RANK", options.node_rank);
  put("MASTER_PORT", place.master_port);
  put("TORCHELASTIC_RESTART_COUNT", place.attempt);
  environment.set("MASTER_ADDR", place.master_addr);
  environment.set("TORCHELASTIC_USE_AGENT_STORE", place.launcher_serves ? "True" : "False");
  environment.set(kErrorFolderVariable, place.error_folder.string());
  if (environment.get_or("OMP_NUM_THREADS", "").empty()) {
    put("OMP_NUM_THREADS", threads_per_rank(usable_cpus(), ranks));
  }
  for (const char* left_over : {"NPROC_PER_NODE", "TORCHELASTIC_ERROR_FILE"}) environment.unset(left_over);
  return environment;
}

}  // namespace apus::launch
