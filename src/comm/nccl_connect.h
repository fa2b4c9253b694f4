#pragma once

#include <chrono>

#include "comm/abort_domain.h"
#include "comm/nccl_link.h"

namespace apus::comm {

/// Connects a link to its group: rank 0 makes the unique id and hands it over through the store.
/// Throws:      CommError, after the job has been ended with the reason, if that fails or takes longer than
///              the timeout.
void connect_link(NcclLink& link, const NcclBackend& backend, AbortDomain& domain, const GroupState& group,
                  std::chrono::milliseconds timeout);

/// Takes a caller's communicator. Throws ConfigError if it has another rank or size than the group.
void adopt_link(NcclLink& link, const NcclBackend& backend, const GroupState& group, NcclComm comm);

}  // namespace apus::comm
