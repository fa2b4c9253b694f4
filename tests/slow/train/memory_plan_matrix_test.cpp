// The plan against what ranks really hold: jobs x policies x recompute x dtypes, with other sizes than the
// default test's.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/plan_measure.h"
#include "tests/support/policies.h"

namespace apus::testing {
namespace {

using parallel::Recompute;

std::string word(Recompute recompute) {
  return std::string(train::recompute_name(recompute));
}

std::string job_word(Job job) {
  switch (job) {
    case Job::kFullSft:
      return "FullSft";
    case Job::kLoraDpo:
      return "LoraDpo";
    case Job::kLoraSft:
      return "LoraSft";
    case Job::kFullDpo:
      return "FullDpo";
  }
  return "";
}

/// Every job under every policy and recompute; lengths, micro-batches, worlds and dtypes go round.
std::vector<PlanCase> matrix() {
  const auto small = qwen_sizes(2048, 256, 688, 4), deep = qwen_sizes(1024, 192, 512, 8);
  const auto wide = qwen_sizes(8192, 320, 864, 3);
  std::vector<PlanCase> cases;
  for (const Job job : {Job::kFullSft, Job::kLoraDpo, Job::kLoraSft, Job::kFullDpo}) {
    for (const parallel::ShardPolicy& policy : all_policies()) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kPartial, Recompute::kBlock}) {
        const auto turn = static_cast<int64_t>(cases.size());
        PlanCase the{.job = job, .policy = policy, .recompute = recompute};
        const bool partition = std::holds_alternative<int>(policy.reshard_after_forward);
        the.world = partition || policy.replicate > 1 ? 4 : (turn % 3 == 0 ? 4 : 2);
        the.length = 64 + 48 * (turn % 5);
        the.micro_batch_rows = 1 + turn % 3;
        the.accumulation = 1 + turn % 3;
        the.dtype = turn % 4 == 3 ? at::kBFloat16 : at::kFloat;
        the.layout = turn % 5 == 4 ? data::BatchLayout::kPacked : data::BatchLayout::kPadded;
        the.config = turn % 3 == 0 ? small : turn % 3 == 1 ? deep : wide;
        the.bucket_elements = turn % 2 == 0 ? 200'000'000 : 1'000'000;
        the.name = job_word(job) + "_" + policy.name + (partition ? "_hpz_" : "_") + word(recompute) + "_" +
                   std::to_string(turn);
        cases.push_back(the);
      }
    }
  }
  return cases;
}

class PlanMatrix : public ::testing::TestWithParam<PlanCase> {};

TEST_P(PlanMatrix, IsWithinTenPercentOfEveryRanksPeak) {
  expect_within_ten_percent(GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, PlanMatrix, ::testing::ValuesIn(matrix()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace apus::testing
