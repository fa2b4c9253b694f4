#include "apus/parallel/shard_policy.h"

#include <gtest/gtest.h>

#include <string>

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
  EXPECT_FALSE(Zero3().keeps_whole(8));
  EXPECT_TRUE(Zero3().keeps_whole(1)) << "shared with nobody";
  EXPECT_TRUE(Fsdp({.reshard_after_forward = false}).keeps_whole(8));
  ShardPolicy offloaded = Zero3();
  offloaded.residency.parameters = memory::Residency::kHost;
  EXPECT_FALSE(offloaded.keeps_whole(1)) << "they leave the device";
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

std::string refusal_of(ShardPolicy policy, const memory::StateResidency& residency) {
  policy.residency = residency;
  try {
    policy.check(2, 1);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ShardPolicy, WhatCannotLieOnTheHostIsRefusedWithARemedy) {
  constexpr auto kHost = memory::Residency::kHost, kDevice = memory::Residency::kDevice;
  for (const ShardPolicy& policy : {ShardPolicy(Ddp()), ShardPolicy(Zero1()), ShardPolicy(Zero3())}) {
    EXPECT_EQ(refusal_of(policy, {.optimizer = kHost}), "") << policy.name;
  }
  EXPECT_EQ(refusal_of(Zero2(), {kHost, kHost, kDevice}), "");
  EXPECT_EQ(refusal_of(Zero3(), {kHost, kHost, kHost}), "");
  EXPECT_EQ(refusal_of(Zero3(), {.parameters = kHost}), "");
  const auto says = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  says(refusal_of(Zero2(), {.gradients = kHost}), "offload the optimizer too");
  says(refusal_of(Zero1(), {kHost, kHost, kDevice}), "use zero2, zero3 or fsdp");
  says(refusal_of(Zero2(), {kHost, kDevice, kHost}), "use zero3 or fsdp");
}

}  // namespace
}  // namespace apus::parallel
