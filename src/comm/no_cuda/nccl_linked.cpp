#include "comm/nccl_linked.h"

#include "apus/base/error.h"

namespace apus::comm {

NcclBackend linked_nccl() {
  throw NotSupported(
      "GPUs cannot talk through NCCL: this apus was built without CUDA; configure with -DAPUS_CUDA=ON, or "
      "use GlooCommunicator");
}

}  // namespace apus::comm
