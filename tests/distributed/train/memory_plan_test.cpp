// The plan against what ranks really hold, on ten configurations; docs/design/memory_plan.md has the table.
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/plan_measure.h"

namespace apus::testing {
namespace {

using memory::Residency;
using parallel::Recompute;

class PlanAgainstMeasurement : public ::testing::TestWithParam<PlanCase> {};

TEST_P(PlanAgainstMeasurement, IsWithinTenPercentOfEveryRanksPeak) {
  expect_within_ten_percent(GetParam());
}

std::vector<PlanCase> plan_cases() {
  using enum Job;
  const auto small = qwen_sizes(2048, 256, 688, 4), deep = qwen_sizes(1024, 192, 512, 8),
             wide = qwen_sizes(4096, 256, 1024, 3);
  return {
      {.name = "LoraDpoUnderDdp", .job = kLoraDpo, .policy = parallel::Ddp(), .world = 2, .config = small},
      {.name = "FullSftUnderZero2", .policy = parallel::Zero2(), .world = 2, .length = 160, .config = small},
      {.name = "FullSftUnderZero3WithBlocks",
       .policy = parallel::Zero3(),
       .world = 4,
       .recompute = Recompute::kBlock,
       .micro_batch_rows = 4,
       .length = 64,
       .config = deep},
      {.name = "LoraSftUnderZero1Partial",
       .job = kLoraSft,
       .policy = parallel::Zero1(),
       .world = 2,
       .recompute = Recompute::kPartial,
       .micro_batch_rows = 3,
       .length = 128,
       .config = deep},
      {.name = "FullSftUnderShardGradOp",
       .policy = parallel::Fsdp({.sharding = parallel::FsdpSharding::kShardGradOp}),
       .world = 2,
       .micro_batch_rows = 1,
       .length = 200,
       .accumulation = 3,
       .config = deep},
      {.name = "FullDpoWithASecondModel",
       .job = kFullDpo,
       .policy = parallel::Zero2(),
       .world = 1,
       .micro_batch_rows = 1,
       .length = 128,
       .config = wide},
  };
}

/// Both sides are one memory on the CPU: nothing may lie twice, nothing be forgotten.
std::vector<PlanCase> offload_cases() {
  const auto deep = qwen_sizes(1024, 192, 512, 8);
  const memory::StateResidency optimizer{.optimizer = Residency::kHost};
  const memory::StateResidency all{Residency::kHost, Residency::kHost, Residency::kHost};
  return {
      {.name = "FullSftUnderZero2WithItsOptimizer",
       .policy = parallel::Zero2(),
       .world = 2,
       .length = 160,
       .residency = optimizer,
       .config = qwen_sizes(2048, 256, 688, 4)},
      {.name = "FullSftUnderZero3WithAllStates",
       .policy = parallel::Zero3(),
       .world = 2,
       .recompute = Recompute::kBlock,
       .length = 64,
       .residency = all,
       .config = deep},
      {.name = "LongRowsUnderZero2WithGradientsAndActivations",
       .policy = parallel::Zero2(),
       .world = 1,
       .recompute = Recompute::kBlock,
       .micro_batch_rows = 4,
       .length = 512,
       .residency = {.optimizer = Residency::kHost, .gradients = Residency::kHost},
       .activations = Residency::kHost,
       .config = deep},
      {.name = "LoraDpoUnderZero3WithParametersAndActivations",
       .job = Job::kLoraDpo,
       .policy = parallel::Zero3(),
       .world = 2,
       .recompute = Recompute::kBlock,
       .length = 256,
       .residency = {.optimizer = Residency::kHost, .parameters = Residency::kHost},
       .activations = Residency::kHost,
       .config = deep},
  };
}

INSTANTIATE_TEST_SUITE_P(Configurations, PlanAgainstMeasurement, ::testing::ValuesIn(plan_cases()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Offload, PlanAgainstMeasurement, ::testing::ValuesIn(offload_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace apus::testing
