#pragma once

#include <cstdint>
#include <string>

#include "apus/train/memory_plan_job.h"

namespace apus::train {

/// GiB, or MiB below one tenth of that.
std::string bytes_text(int64_t bytes);

/// What ranks keep on the host, a rank and a machine, by term, and whether the machine has it; empty where
/// nothing is offloaded.
std::string host_line(const JobPlan& plan);

}  // namespace apus::train
