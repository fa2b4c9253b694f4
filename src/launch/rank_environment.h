#pragma once

#include <filesystem>
#include <string>

#include "apus/launch/local_launcher.h"

namespace apus::launch {

/// What all ranks of one attempt share.
struct AttemptPlace {
  std::string master_addr;
  int master_port = 0;
  bool launcher_serves = false;  ///< the store; otherwise rank 0 does
  int attempt = 0;
  std::filesystem::path error_folder;
};

/// The environment of one rank of this machine.
Environment rank_environment(const LaunchOptions& options, const AttemptPlace& place, int local_rank);

}  // namespace apus::launch
