#pragma once

#include <functional>
#include <string>

#include "apus/base/api.h"
#include "apus/comm/communicator.h"

namespace apus::comm {

/// Runs a phase of local work that may fail on some ranks only (reading files, writing a checkpoint), then lets all
/// ranks learn how it went: one rank's error ends the phase on all.
/// Collectives: none; a status exchange through the store. Every rank of the group calls it equally often.
/// Throws: on a rank that failed its own error, on the others CommError with the failed rank's message.
APUS_API void run_agreed(Communicator& group, const std::string& what, const std::function<void()>& phase);

/// Rank 0's text on every rank. Collectives: two broadcasts (8 bytes, then the text's).
APUS_API std::string broadcast_text(Communicator& group, const std::string& text);

}  // namespace apus::comm
