#pragma once

#include <memory>
#include <string>

#include "apus/base/api.h"
#include "apus/comm/communicator.h"

namespace apus::comm {

/// Options of make_fake_communicator.
struct APUS_API FakeOptions {
  int rank = 0;
  int size = 1;
  std::string name = "world";
};

/// One rank of n without peers: its memory, shapes and order are true, and it trains its own shard.
/// Fake peers contribute zeros: all_reduce and reduce_scatter give this rank's own scaled data; all_to_all
/// brings this rank's own part and zeros, so that a sum of the parts is right too; all_gather writes this
/// rank's part and leaves the rest of the output as it was; a broadcast from another root and receives leave the tensor as it was; status exchanges succeed
/// (store() is null). With size 1 it is exact. split() throws NotSupported (the peers' colors are unknown):
/// use subgroup().
APUS_API std::unique_ptr<Communicator> make_fake_communicator(const FakeOptions& options);

}  // namespace apus::comm
