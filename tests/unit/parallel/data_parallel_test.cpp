#include "apus/parallel/data_parallel.h"

#include <gtest/gtest.h>

#include "apus/comm/decorators.h"
#include "apus/comm/fake_communicator.h"

namespace apus::parallel {
namespace {

TEST(DataParallel, ReducesWhereItGathersUnlessASecondGroupIsThere) {
  const auto dp = comm::make_fake_communicator({.rank = 1, .size = 4});
  DataParallel ranks = DataParallel::one_axis(*dp);
  EXPECT_EQ(&ranks.reduction(), dp.get());
  EXPECT_EQ(&ranks.exchange(), dp.get());
  const auto second = second_shard_group(ranks);
  ranks.reduce = second.get();
  EXPECT_EQ(&ranks.reduction(), second.get());
  EXPECT_EQ(&ranks.exchange(), second.get());
}

TEST(DataParallel, ReplicasExchangeOverAllRanks) {
  const std::shared_ptr<comm::Communicator> world = comm::make_fake_communicator({.rank = 3, .size = 4});
  const comm::DeviceMesh mesh(world, {.dp_replicate = 2});
  DataParallel ranks = DataParallel::of(mesh);
  EXPECT_EQ(ranks.replicas(), 2);
  const auto second = second_shard_group(ranks);
  ranks.reduce = second.get();
  EXPECT_EQ(&ranks.exchange(), mesh.group("dp").get());
}

TEST(SecondShardGroup, HasTheRanksOfTheFirstInItsOrder) {
  const std::shared_ptr<comm::Communicator> world = comm::make_fake_communicator({.rank = 3, .size = 4});
  const comm::DeviceMesh mesh(world, {.dp_replicate = 2});
  const auto second = second_shard_group(DataParallel::of(mesh));
  EXPECT_EQ(second->size(), 2);
  EXPECT_EQ(second->rank(), 1);
  EXPECT_EQ(second->name(), mesh.group("dp_shard")->name() + "_reduce");
}

}  // namespace
}  // namespace apus::parallel
