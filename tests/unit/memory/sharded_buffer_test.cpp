#include "apus/memory/sharded_buffer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::memory {
namespace {

at::Tensor counting(int64_t bytes) {
  return at::arange(bytes, at::kByte);
}

TEST(ShardedBuffer, LivesFromShardedThroughGatheringToReadyAndBack) {
  ShardedBuffer buffer("block 1", 16, {1, 4}, at::kCPU);
  EXPECT_EQ(buffer.shard().numel(), 4);
  EXPECT_EQ(buffer.shard_offset(), 4);
  const at::Tensor parameter = buffer.view(8, {4}, at::kByte);
  EXPECT_EQ(buffer.state(), ShardState::kSharded);
  EXPECT_THROW(parameter.clone(), c10::Error);
  buffer.begin_gather(counting(16));
  EXPECT_EQ(buffer.state(), ShardState::kGathering);
  EXPECT_THROW(parameter.clone(), c10::Error) << "not readable before the collective has ended";
  buffer.finish_gather();
  EXPECT_EQ(buffer.state(), ShardState::kReady);
  EXPECT_EQ(parameter[0].item<int>(), 8);
  buffer.release();
  EXPECT_THROW(parameter.clone(), c10::Error);
}

TEST(ShardedBuffer, ErrorsNameItAndSayWhatToDo) {
  const ShardedBuffer buffer("group3 (block 1)", 16, {0, 1}, at::kCPU);
  try {
    buffer.view(0, {4}, at::kFloat).clone();
    FAIL() << "nothing was thrown";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("group3 (block 1)"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("gather_masters"), std::string::npos);
  }
}

TEST(ShardedBuffer, TheSecondaryRangeIsWrittenAnewByEachGather) {
  // pitfalls.md row 32: a secondary copy that was kept over a load was stale
  ShardedBuffer buffer("block 1", 16, {2, 4}, at::kCPU);
  for (const int shift : {0, 100}) {
    buffer.begin_gather(counting(16) + shift);
    buffer.finish_gather();
    buffer.keep_secondary({1, 2});
    EXPECT_EQ(buffer.secondary().numel(), 8);
    EXPECT_EQ(buffer.secondary()[0].item<int>(), 8 + shift);
    buffer.release();
  }
  buffer.drop_secondary();
  EXPECT_FALSE(buffer.secondary().defined());
}

TEST(ShardedBuffer, WrongOrderAndWrongSizesAreRefused) {
  ShardedBuffer buffer("block 1", 16, {0, 2}, at::kCPU);
  EXPECT_THROW(buffer.finish_gather(), Error);
  EXPECT_THROW(buffer.release(), Error);
  EXPECT_THROW(buffer.keep_secondary({0, 2}), Error);
  EXPECT_THROW(buffer.begin_gather(counting(8)), Error);
  EXPECT_THROW(ShardedBuffer("block 1", 15, {0, 2}, at::kCPU), ConfigError);
  EXPECT_THROW(ShardedBuffer("block 1", 16, {2, 2}, at::kCPU), ConfigError);
}

}  // namespace
}  // namespace apus::memory
