#include "apus/parallel/data_parallel.h"

namespace apus::parallel {

DataParallel DataParallel::of(const comm::DeviceMesh& mesh) {
  comm::Communicator* replicate = mesh.size("dp_replicate") > 1 ? mesh.group("dp_replicate").get() : nullptr;
  return {mesh.group("dp").get(), mesh.group("dp_shard").get(), replicate};
}

}  // namespace apus::parallel
