#include "apus/parallel/data_parallel.h"

#include <numeric>
#include <vector>

namespace apus::parallel {

DataParallel DataParallel::of(const comm::DeviceMesh& mesh) {
  comm::Communicator* replicate = mesh.size("dp_replicate") > 1 ? mesh.group("dp_replicate").get() : nullptr;
  return {mesh.group("dp").get(), mesh.group("dp_shard").get(), replicate, nullptr};
}

std::unique_ptr<comm::Communicator> second_shard_group(const DataParallel& ranks) {
  std::vector<int> all(static_cast<size_t>(ranks.shard->size()));
  std::iota(all.begin(), all.end(), 0);
  return ranks.shard->subgroup(all, ranks.shard->name() + "_reduce");
}

}  // namespace apus::parallel
