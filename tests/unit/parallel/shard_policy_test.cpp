#include "apus/parallel/shard_policy.h"

#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::parallel {
namespace {

TEST(ShardPolicy, NamedPoliciesCutWhatTheirNamesSay) {
  const auto cuts = [](const ShardPolicy& policy) {
    return std::string(policy.param_shard ? "p" : "-") + (policy.grad_shard ? "g" : "-") +
           (policy.opt_shard ? "o" : "-");
  };
  EXPECT_EQ(cuts(Ddp()), "---");
  EXPECT_EQ(cuts(Zero1()), "--o");
  EXPECT_EQ(cuts(Zero2()), "-go");
  EXPECT_EQ(cuts(Zero3()), "pgo");
  EXPECT_EQ(cuts(Fsdp()), "pgo");
  EXPECT_EQ(cuts(HybridFsdp()), "pgo");
}

TEST(ShardPolicy, ReshardAfterForwardSaysHowManyRanksKeepAUnit) {
  EXPECT_EQ(Fsdp().backward_ranks(8), 8);
  EXPECT_EQ(Fsdp({.reshard_after_forward = false}).backward_ranks(8), 1);
  EXPECT_EQ(Fsdp({.reshard_after_forward = 4}).backward_ranks(8), 4);
  EXPECT_EQ(Fsdp({.sharding = FsdpSharding::kShardGradOp}).backward_ranks(8), 1);
  EXPECT_EQ(Zero3(2).backward_ranks(8), 2);
  EXPECT_EQ(Zero3().backward_ranks(8), 8);
}

TEST(ShardPolicy, HybridShardingNeedsItsMesh) {
  const HybridFsdp hybrid({.replicate = 2});
  EXPECT_EQ(hybrid.mesh().dp_replicate, 2);
  EXPECT_NO_THROW(hybrid.check(4, 2));
  EXPECT_THROW(hybrid.check(8, 1), ConfigError);
  EXPECT_THROW(Zero2().check(2, 2), ConfigError);
}

TEST(ShardPolicy, ContradictionsAreRefused) {
  EXPECT_THROW((ShardPolicy{.param_shard = true}.check(2, 1)), ConfigError);
  EXPECT_THROW((ShardPolicy{.grad_shard = true}.check(2, 1)), ConfigError);
  EXPECT_THROW((ShardPolicy{.reduce = ReduceCadence::kMicroBatch}.check(2, 1)), ConfigError);
  EXPECT_THROW(Fsdp({.reshard_after_forward = 3}).check(4, 1), ConfigError);
  EXPECT_THROW(Fsdp({.reshard_after_forward = 8}).check(4, 1), ConfigError);
  EXPECT_THROW(Fsdp({.sharding = FsdpSharding::kShardGradOp, .reshard_after_forward = 2}), ConfigError);
  EXPECT_THROW(Zero3(0), ConfigError);
  EXPECT_THROW(HybridFsdp({.replicate = 0}), ConfigError);
}

}  // namespace
}  // namespace apus::parallel
