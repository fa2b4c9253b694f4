#include "apus/nn/shard_plan.h"

#include <gtest/gtest.h>

namespace apus::nn {
namespace {

TEST(MatchesPath, AStarIsExactlyOneComponent) {
  EXPECT_TRUE(matches_path("model.layers.*.mlp.up_proj", "model.layers.17.mlp.up_proj"));
  EXPECT_FALSE(matches_path("model.layers.*.mlp.up_proj", "model.layers.1.7.mlp.up_proj"));
  EXPECT_FALSE(matches_path("model.*", "model"));
  EXPECT_FALSE(matches_path("model", "model.norm"));
  EXPECT_FALSE(matches_path("model.norm", "model.normal"));
  EXPECT_TRUE(matches_path("*", "lm_head"));
  EXPECT_FALSE(matches_path("", "lm_head"));
}

TEST(ShardPlan, TheFirstMatchWins) {
  const ShardPlan plan = {.rules = {{"layers.0.*", ShardStyle::kRow}, {"layers.*.*", ShardStyle::kColumn}}};
  EXPECT_EQ(plan.style_of("layers.0.q"), ShardStyle::kRow);
  EXPECT_EQ(plan.style_of("layers.1.q"), ShardStyle::kColumn);
}

TEST(ShardPlan, WhatNoRuleNamesIsReplicated) {
  EXPECT_EQ(ShardPlan{}.style_of("anything"), ShardStyle::kReplicate);
  const ShardPlan plan = {.rules = {{"lm_head", ShardStyle::kVocab}}};
  EXPECT_EQ(plan.style_of("model.norm"), ShardStyle::kReplicate);
}

}  // namespace
}  // namespace apus::nn
