#include "apus/comm/nccl_communicator.h"

#include <utility>

#include "comm/nccl_group.h"
#include "comm/nccl_linked.h"

namespace apus::comm {

std::unique_ptr<Communicator> NcclCommunicator::create(std::shared_ptr<Communicator> host,
                                                       const NcclOptions& options) {
  return make_nccl_group(std::move(host), options, std::make_shared<const NcclBackend>(linked_nccl()));
}

}  // namespace apus::comm
