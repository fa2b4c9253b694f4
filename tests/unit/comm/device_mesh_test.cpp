#include "apus/comm/device_mesh.h"

#include <gtest/gtest.h>

#include <limits>

#include "apus/base/error.h"
#include "apus/comm/fake_communicator.h"

namespace apus::comm {
namespace {

void expect_config_error(const MeshOptions& options, int world, const std::string& part) {
  try {
    const MeshLayout layout(options, world);
    FAIL() << "expected ConfigError with: " << part;
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(MeshLayout, WrongProductsShowTheArithmetic) {
  expect_config_error({.pp = 2, .dp_shard = 3}, 4,
                      "pp 2 x dp_replicate 1 x dp_shard 3 x cp 1 x tp 1 = 6, but the world has 4 ranks");
  expect_config_error({.tp = 3}, 4,
                      "pp 1 x dp_replicate 1 x cp 1 x tp 3 = 3 does not divide the world's 4 ranks");
  expect_config_error({.ep = 3}, 4, "ep 3 does not divide dp_shard 4 x cp 1 x tp 1 = 4");
  expect_config_error({.pp = 0}, 4, "pp has degree 0");
  expect_config_error({.dp_shard = -1}, 4, "dp_shard has degree -1");
}

TEST(MeshLayout, ProductsBeyondAnIntAreWrongProductsToo) {
  // 65536 x 65536 is 0 in 32 bits, and nothing can be divided by that.
  expect_config_error(
      {.pp = 65536, .dp_replicate = 65536}, 4,
      "pp 65536 x dp_replicate 65536 x cp 1 x tp 1 = 4294967296 does not divide the world's 4");
  expect_config_error({.pp = 65536, .dp_replicate = 65536, .dp_shard = 2}, 4, "= 8589934592, but the world");
  constexpr int kMost = std::numeric_limits<int>::max();
  expect_config_error({.pp = kMost, .dp_replicate = kMost, .dp_shard = kMost, .cp = kMost, .tp = kMost}, 4,
                      "= 9223372036854775807, but the world has 4 ranks");
}

TEST(MeshLayout, DpShardTakesWhatIsLeftOver) {
  const MeshLayout layout({.pp = 2, .tp = 2}, 16);
  EXPECT_EQ(layout.degrees().dp_shard, 4);
  EXPECT_EQ(layout.text(), "pp 2 x dp_replicate 1 x dp_shard 4 x cp 1 x tp 2 = 16");
}

TEST(MeshLayout, TpRunsFastestAndPpSlowest) {
  const MeshLayout layout({.pp = 2, .dp_replicate = 2, .dp_shard = 2, .cp = 2, .tp = 2}, 32);
  // rank = (((pp * 2 + replicate) * 2 + shard) * 2 + cp) * 2 + tp; 13 = 0b01101
  EXPECT_EQ(layout.coordinate("pp", 13), 0);
  EXPECT_EQ(layout.coordinate("dp_replicate", 13), 1);
  EXPECT_EQ(layout.coordinate("dp_shard", 13), 1);
  EXPECT_EQ(layout.coordinate("cp", 13), 0);
  EXPECT_EQ(layout.coordinate("tp", 13), 1);
  EXPECT_EQ(layout.ranks("tp", 13), (std::vector<int>{12, 13}));
  EXPECT_EQ(layout.ranks("cp", 13), (std::vector<int>{13, 15}));
  EXPECT_EQ(layout.ranks("dp_shard", 13), (std::vector<int>{9, 13}));
  EXPECT_EQ(layout.ranks("dp_replicate", 13), (std::vector<int>{5, 13}));
  EXPECT_EQ(layout.ranks("pp", 13), (std::vector<int>{13, 29}));
}

TEST(MeshLayout, FlattenedAxesCombine) {
  const MeshLayout layout({.dp_replicate = 2, .dp_shard = 2, .cp = 2, .tp = 2}, 16);
  EXPECT_EQ(layout.size("dp"), 4);
  EXPECT_EQ(layout.ranks("dp", 1), (std::vector<int>{1, 5, 9, 13}));
  EXPECT_EQ(layout.coordinate("dp", 13), 3);
  EXPECT_EQ(layout.ranks("dp_cp", 1), (std::vector<int>{1, 3, 5, 7, 9, 11, 13, 15}));
  EXPECT_EQ(layout.ranks("dp_shard_cp", 9), (std::vector<int>{9, 11, 13, 15}));
  EXPECT_EQ(layout.size("world"), 16);
}

TEST(MeshLayout, ExpertsViewTheSameRanksAsEdpTimesEp) {
  const MeshLayout layout({.dp_replicate = 2, .dp_shard = 2, .cp = 1, .tp = 2, .ep = 2}, 8);
  EXPECT_EQ(layout.size("edp"), 2);
  EXPECT_EQ(layout.ranks("ep", 6), (std::vector<int>{6, 7}));
  EXPECT_EQ(layout.ranks("edp", 6), (std::vector<int>{4, 6}));
}

/// Every axis cuts the world into groups of equal size in which each rank has the place of its coordinate.
TEST(MeshLayout, EveryAxisIsAPartitionOfTheWorld) {
  const MeshLayout layout({.pp = 2, .dp_replicate = 1, .dp_shard = 3, .cp = 2, .tp = 2, .ep = 4}, 24);
  for (const std::string& name : MeshLayout::names()) {
    for (int rank = 0; rank < 24; ++rank) {
      const std::vector<int> ranks = layout.ranks(name, rank);
      ASSERT_EQ(static_cast<int>(ranks.size()), layout.size(name)) << name;
      ASSERT_EQ(ranks[layout.coordinate(name, rank)], rank) << name;
      for (int other : ranks) ASSERT_EQ(layout.ranks(name, other), ranks) << name;
    }
  }
}

TEST(MeshLayout, UnknownAxesAreNamedWithTheKnownOnes) {
  const MeshLayout layout({}, 2);
  try {
    layout.size("data");
    FAIL() << "expected ConfigError";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("'data'"), std::string::npos) << text;
    EXPECT_NE(text.find("dp_replicate"), std::string::npos) << text;
  }
}

TEST(DeviceMesh, GroupsHaveTheLayoutsSizesAndSharedRanksShareACommunicator) {
  const DeviceMesh mesh(make_fake_communicator({.rank = 5, .size = 8}), {.dp_shard = 4, .tp = 2});
  for (const std::string& name : MeshLayout::names()) {
    EXPECT_EQ(mesh.group(name)->size(), mesh.size(name)) << name;
    EXPECT_EQ(mesh.group(name)->rank(), mesh.coordinate(name)) << name;
  }
  EXPECT_EQ(mesh.group("dp"), mesh.group("dp_shard"));
  EXPECT_EQ(mesh.group("dp")->name(), "dp");
  EXPECT_EQ(mesh.group("pp"), mesh.group("cp"));
  EXPECT_NE(mesh.group("world"), mesh.group("edp"));
  EXPECT_EQ(mesh.rank(), 5);
  EXPECT_THROW(mesh.group("data"), ConfigError);
}

}  // namespace
}  // namespace apus::comm
