#include "apus/memory/flat_layout.h"

#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::memory {
namespace {

std::vector<FlatEntry> three() {
  return {{"a", {3, 5}}, {"b", {128}}, {"c", {1000}}};
}

TEST(FlatLayout, EachParameterStartsAligned) {
  const FlatLayout layout(three(), 2);
  EXPECT_EQ(layout.range_of(0), (ElementRange{0, 15}));
  EXPECT_EQ(layout.range_of(1), (ElementRange{128, 256}));
  EXPECT_EQ(layout.range_of(2), (ElementRange{256, 1256}));
  EXPECT_EQ(layout.used_elements(), 15 + 128 + 1000);
}

TEST(FlatLayout, ShardsAreEqualAndOfWholeBlocks) {
  for (const int world : {1, 2, 3, 4, 7}) {
    const FlatLayout layout(three(), world);
    EXPECT_EQ(layout.padded_elements() % (world * FlatLayout::kBlockElements), 0);
    EXPECT_EQ(layout.shard_range(0).begin, 0);
    EXPECT_EQ(layout.shard_range(world - 1).end, layout.padded_elements());
    EXPECT_EQ(layout.shard_range(world - 1).size(), layout.shard_elements());
  }
}

TEST(FlatLayout, PlacesDoNotDependOnTheWorld) {
  const FlatLayout one(three(), 1), seven(three(), 7);
  for (int64_t index = 0; index < 3; ++index) EXPECT_EQ(one.range_of(index), seven.range_of(index));
}

TEST(FlatLayout, FewerElementsThanRanksStillGiveEveryRankAShard) {
  // pitfalls.md row 13
  const FlatLayout layout({{"tiny", {2}}}, 8);
  EXPECT_EQ(layout.shard_elements(), FlatLayout::kBlockElements);
  EXPECT_EQ(intersect(layout.range_of(0), layout.shard_range(7)).size(), 0);
}

TEST(FlatLayout, ZeroSizedParametersTakeNoElements) {
  // pitfalls.md row 13
  const FlatLayout layout({{"none", {0, 4}}, {"some", {4}}}, 2);
  EXPECT_EQ(layout.range_of(0).size(), 0);
  EXPECT_EQ(layout.range_of(1), (ElementRange{0, 4}));
}

TEST(FlatLayout, TheFingerprintTellsLayoutsApart) {
  EXPECT_EQ(FlatLayout(three(), 2).fingerprint(), FlatLayout(three(), 2).fingerprint());
  EXPECT_NE(FlatLayout(three(), 2).fingerprint(),
            FlatLayout({{"a", {5, 3}}, {"b", {128}}, {"c", {1000}}}, 2).fingerprint());
}

TEST(FlatLayout, RefusesDoubleNamesAndForeignRanks) {
  EXPECT_THROW(FlatLayout({{"a", {1}}, {"a", {2}}}, 1), ConfigError);
  EXPECT_THROW(FlatLayout(three(), 0), ConfigError);
  EXPECT_THROW(FlatLayout(three(), 2).shard_range(2), ConfigError);
}

TEST(ElementRange, IntersectionsAreEmptyRatherThanNegative) {
  EXPECT_EQ(intersect({0, 4}, {2, 8}), (ElementRange{2, 4}));
  EXPECT_EQ(intersect({0, 4}, {6, 8}).size(), 0);
}

TEST(FlatLayout, SectionsStartAtBlocksSoThatTheirBlocksAreTheSameInAnyBuffer) {
  const FlatLayout both({{"a", {5}, true}, {"b", {7}}, {"c", {1030}, true}}, 2);
  EXPECT_EQ(both.range_of(1).begin, 128);
  EXPECT_EQ(both.range_of(2).begin, 1024);
  const FlatLayout alone({{"c", {1030}, true}}, 4);
  EXPECT_EQ(alone.range_of(0).begin % FlatLayout::kBlockElements,
            both.range_of(2).begin % FlatLayout::kBlockElements);
}

}  // namespace
}  // namespace apus::memory
