#include "ops/gemm_plans.h"

#include <gtest/gtest.h>

namespace apus::ops {
namespace {

GemmKey key_of(int64_t size, int64_t device = 0) {
  return {device, 1, 2, 3, size, -1};
}

GemmPlan plan_of(uint64_t word) {
  return {.algorithm = {word, 1, 2, 3, 4, 5, 6, ~uint64_t{0}},
          .workspace_bytes = 100 + word,
          .found = true,
          .is_settled = true};
}

TEST(GemmPlans, RemembersThePlanOfAProduct) {
  GemmPlans plans;
  EXPECT_FALSE(plans.use(key_of(8)).plan.has_value());
  plans.keep(key_of(8), plan_of(1));
  EXPECT_EQ(plans.use(key_of(8)).plan, plan_of(1));
  EXPECT_FALSE(plans.use(key_of(9)).plan.has_value());
}

TEST(GemmPlans, ASettledProductIsNotTimed) {
  GemmPlans plans;
  GemmPlan plan = plan_of(1);
  plan.is_settled = false;
  plans.keep(key_of(8), plan);
  EXPECT_FALSE(plans.use(key_of(8)).wants_timing);
  EXPECT_FALSE(plans.use(key_of(8)).wants_timing);
  EXPECT_TRUE(plans.use(key_of(8)).wants_timing);
  EXPECT_TRUE(plans.use(key_of(8)).wants_timing) << "it was not timed yet";
  plans.keep_timed(key_of(8), plan_of(1));
  EXPECT_FALSE(plans.use(key_of(8)).wants_timing);
}

TEST(GemmPlans, WhatCublasltHasNoAlgorithmForIsNotTimed) {
  GemmPlans plans({.uses = 1});
  plans.keep(key_of(8), {});
  EXPECT_FALSE(plans.use(key_of(8)).wants_timing);
}

TEST(GemmPlans, TimingStaysSmallBesideComputing) {
  GemmPlans plans({.uses = 1, .free_timings = 2, .products_a_timing = 10});
  for (int64_t size = 1; size <= 2; ++size) {
    EXPECT_TRUE(plans.use(key_of(size)).wants_timing);
    plans.keep_timed(key_of(size), plan_of(1));
  }
  for (int product = 3; product < 10; ++product) EXPECT_FALSE(plans.use(key_of(99)).wants_timing) << product;
  EXPECT_TRUE(plans.use(key_of(99)).wants_timing);
}

TEST(GemmPlans, BeginsAnewUnderOtherLimits) {
  GemmPlans plans({.uses = 1});
  plans.keep_timed(key_of(8), plan_of(1));
  plans.restart({.uses = 1, .finalists = 0});
  EXPECT_EQ(plans.size(), 0U);
  EXPECT_EQ(plans.finalists(), 0);
  EXPECT_FALSE(plans.use(key_of(8)).wants_timing) << "without finalists nothing is timed";
  plans.restart({.uses = 1});
  EXPECT_TRUE(plans.use(key_of(8)).wants_timing);
}

TEST(GemmPlans, ForgetsWhatWasUsedLongestAgo) {
  GemmPlans plans({.most_plans = 8});
  for (int64_t size = 0; size < 100; ++size) {
    plans.use(key_of(size));
    plans.keep(key_of(size), plan_of(1));
    plans.use(key_of(0));
    EXPECT_LE(plans.size(), 8U);
  }
  EXPECT_TRUE(plans.use(key_of(0)).plan.has_value());
  EXPECT_TRUE(plans.use(key_of(99)).plan.has_value());
  EXPECT_FALSE(plans.use(key_of(1)).plan.has_value());
}

TEST(GemmPlans, ATextBringsSettledPlansToAnotherProcess) {
  GemmPlans first, second;
  first.keep(key_of(8, 1), plan_of(7));
  GemmPlan open = plan_of(9);
  open.is_settled = false;
  first.keep(key_of(9, 1), open);
  first.keep(key_of(10, 0), plan_of(3));
  EXPECT_EQ(second.read(first.text(1), 5), 1);
  GemmPlan wanted = plan_of(7);
  wanted.is_checked = false;
  EXPECT_EQ(second.use(key_of(8, 5)).plan, wanted);
  EXPECT_EQ(second.size(), 1U);
  EXPECT_FALSE(second.use(key_of(8, 5)).wants_timing);
}

TEST(GemmPlans, WhatThisProcessTimedItselfStays) {
  GemmPlans first, second;
  first.keep(key_of(8), plan_of(7));
  second.keep(key_of(8), plan_of(1));
  EXPECT_EQ(second.read(first.text(0), 0), 1);
  EXPECT_EQ(second.use(key_of(8)).plan, plan_of(1));
}

TEST(GemmPlans, ADamagedTextIsLeftAlone) {
  GemmPlans first, second;
  first.keep(key_of(8), plan_of(7));
  const std::string text = first.text(0);
  EXPECT_EQ(second.read("", 0), 0);
  EXPECT_EQ(second.read(text.substr(0, text.size() - 1), 0), 0);
  for (size_t at = 0; at < text.size(); ++at) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_EQ(second.read(damaged, 0), 0) << at;
  }
  EXPECT_EQ(second.size(), 0U);
  EXPECT_EQ(second.read(GemmPlans().text(0), 0), 0);
}

}  // namespace
}  // namespace apus::ops
