#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/env_facts.h"

namespace apus::cli {

/// /dev/shm below this breaks runs on several GPUs in containers.
inline constexpr int64_t kLeastSharedMemoryBytes = int64_t{1} << 30;

/// The report of `apus env`: build, GPUs and driver, processors, memory and limits, variables; with a line
/// that begins with "warning: " wherever something stands in a run's way, and its remedy.
std::string env_text(const EnvFacts& facts);

/// Why /dev/shm is too small, and what to do; empty if it is large enough or not there.
std::string shared_memory_warning(const std::optional<SpaceFacts>& space);

}  // namespace apus::cli
