#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "apus/base/api.h"
#include "apus/comm/communicator.h"
#include "apus/comm/store.h"

namespace apus::comm {

/// Options of agree().
struct APUS_API AgreeOptions {
  std::string what = "setup";  ///< for messages: "reading the dataset"
  /// For the slowest rank. Absent: the group's own (`--ddp_timeout`), over a bare store 30 minutes.
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

/// All ranks say whether they are well, and all learn it, before the first collective: one rank's error ends
/// all with its message instead of leaving the others in a collective.
/// `error`:     this rank's message, or nothing if it is well.
/// Collectives: none; only the store is used. Every rank of the group calls it equally often, also a failed
///              one. Recorded communicators do not count it.
/// Throws:      CommError on all ranks if any failed: "rank 2: <message>" of the lowest one and how many
///              more; CommError naming the ranks that did not answer in time.
APUS_API void agree(Communicator& group, const std::optional<std::string>& error,
                    const AgreeOptions& options = {});

/// The same over a bare store, for ranks that have no communicator yet. Calls on one store are told apart by
/// `what` and by how often a rank has called with it.
APUS_API void agree(Store& store, int rank, int size, const std::optional<std::string>& error,
                    const AgreeOptions& options = {});

}  // namespace apus::comm
