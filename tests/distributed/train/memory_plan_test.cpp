// The plan against what ranks really hold, on six configurations; docs/design/memory_plan.md has the table.
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/plan_measure.h"

namespace apus::testing {
namespace {

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

INSTANTIATE_TEST_SUITE_P(Configurations, PlanAgainstMeasurement, ::testing::ValuesIn(plan_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace apus::testing
