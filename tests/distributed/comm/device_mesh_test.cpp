#include "apus/comm/device_mesh.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/comm/decorators.h"
#include "tests/support/rank_threads.h"

namespace apus::comm {
namespace {

using testing::run_ranks;

TEST(DeviceMesh, EveryGroupSumsOverItsRanks) {
  const MeshOptions shapes[] = {{}, {.tp = 2}, {.pp = 2, .dp_shard = 2}, {.dp_replicate = 2, .ep = 2}};
  for (const MeshOptions& shape : shapes) {
    run_ranks(4, [&](std::shared_ptr<Communicator> world) {
      const DeviceMesh mesh(world, shape);
      for (const std::string& name : MeshLayout::names()) {
        const at::Tensor tensor = at::full({1}, 1 << mesh.rank());
        mesh.group(name)->all_reduce(tensor)->wait();
        int64_t expected = 0;
        for (int rank : mesh.layout().ranks(name, mesh.rank())) expected += 1 << rank;
        EXPECT_EQ(tensor.item<int64_t>(), expected) << name << " " << mesh.layout().text();
      }
    });
  }
}

TEST(DeviceMesh, WarmsUpEachGroupOnceInOneOrder) {
  run_ranks(4, [](std::shared_ptr<Communicator> world) {
    const auto log = CommLog::create();
    const DeviceMesh mesh(make_recorded_communicator(world, log), {.dp_shard = 2, .tp = 2});
    std::vector<std::string> warmed;
    for (const OpRecord& record : log->records()) {
      EXPECT_EQ(record.info.payload_bytes, 4);
      warmed.push_back(record.group);
    }
    // dp_cp, dp_shard_cp and dp_shard are dp; pp and cp are the group of one that dp_replicate is.
    EXPECT_EQ(warmed, (std::vector<std::string>{"dp", "dp_replicate", "tp", "edp"}));
  });
}

TEST(DeviceMesh, AWrongProductFailsOnAllRanksBeforeAnythingIsSent) {
  run_ranks(2, [](std::shared_ptr<Communicator> world) {
    EXPECT_THROW(DeviceMesh(world, {.tp = 3}), ConfigError);
    world->barrier();  // still usable
  });
}

}  // namespace
}  // namespace apus::comm
