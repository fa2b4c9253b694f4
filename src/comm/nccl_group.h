#pragma once

#include <memory>

#include "apus/comm/nccl_communicator.h"
#include "comm/nccl_api.h"

namespace apus::comm {

/// NcclCommunicator::create over any tables.
std::unique_ptr<Communicator> make_nccl_group(std::shared_ptr<Communicator> host, const NcclOptions& options,
                                              std::shared_ptr<const NcclBackend> backend);

}  // namespace apus::comm
