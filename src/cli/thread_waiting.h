#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apus/base/env.h"

namespace apus::cli {

/// The environment to start over in, so that operators' threads wait for each other briefly and then sleep;
/// none if this one will do. GNU OpenMP spins for 3 ms at the end of every operator: where other programs
/// want the processors too, the thread that spins keeps away the one it waits for, and a step takes many
/// times as long. OpenMP reads its variables as it is loaded, before main: only a fresh start changes them.
/// Not for commands that compute nothing, a single thread, or where the caller has chosen (OMP_WAIT_POLICY,
/// GOMP_SPINCOUNT).
std::optional<Environment> patient_environment(const std::vector<std::string>& arguments,
                                               const Environment& environment, int processors);

/// Starts this program over (same process, same arguments) if patient_environment() asks for it; otherwise,
/// and if that cannot be done, returns.
void wait_patiently(char** argv, const Environment& environment);

}  // namespace apus::cli
