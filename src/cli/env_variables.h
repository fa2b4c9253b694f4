#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apus/base/env.h"

namespace apus::cli {

/// A variable that a training run may notice, and what becomes of it.
struct VariableNote {
  std::string name;
  std::string value;
  /// Whether apus, or a library that it calls, reads it.
  bool acts = true;
  /// What it does, or why it does nothing and what to take instead.
  std::string note;
};

/// What became of the variables that are set and concern a launch: those of launchers, NCCL_*, GLOO_*,
/// TORCH_NCCL_* and the like, and the few that apus reads itself. By name. `with_nccl`: this build has NCCL.
std::vector<VariableNote> note_variables(const Environment& environment, bool with_nccl);

}  // namespace apus::cli
