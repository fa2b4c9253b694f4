#pragma once

#include <string>
#include <vector>

#include "apus/launch/rank_error.h"
#include "launch/child_process.h"

namespace apus::launch {

/// A rank's end, in the order in which the launcher saw them.
struct RankExit {
  int rank = 0;
  ChildExit exit;
  bool was_stopped = false;  ///< after the launcher had told it to end
};

/// Why a group of ranks failed.
struct FirstCause {
  int exit_code = 0;
  std::string message;
  bool can_be_retried = true;  ///< false for a configuration error
  bool ended_unheard = false;  ///< LaunchResult::ended_unheard
};

/// The first cause of a failure. `exits` holds at least one failed rank; `errors` are sorted by time.
FirstCause find_first_cause(const std::vector<RankExit>& exits, const std::vector<RankError>& errors);

}  // namespace apus::launch
