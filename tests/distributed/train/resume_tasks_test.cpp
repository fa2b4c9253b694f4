// Full and LoRA jobs of every task under sharding strategies: the same bits after a resume, and the losses of
// one rank.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/job_case.h"

namespace apus::testing {
namespace {

struct Strategy {
  JobKind kind;
  std::string deepspeed;
  std::string fsdp;
};

class ShardedJob : public ::testing::TestWithParam<Strategy> {
 protected:
  train::JobOptions options(const std::string& output) const {
    auto options = bench_.options(GetParam().kind, output);
    options.gradient_accumulation_steps = 2;
    options.deepspeed = GetParam().deepspeed;
    options.fsdp = GetParam().fsdp;
    return options;
  }

  JobBench bench_;
};

TEST_P(ShardedJob, ResumesToTheSameBitsAndEqualsOneRank) {
  const auto whole = run_job(2, options("whole"));
  const std::vector<double> losses = losses_of(whole.run_dir);
  const auto first = run_job(2, options("cut"));
  kill_after(first.run_dir, 3);
  const auto second = run_job(2, options("cut"));
  EXPECT_EQ(second.run_dir, first.run_dir);
  EXPECT_EQ(losses_of(second.run_dir), losses);
  EXPECT_EQ(sha256_file(weights_of(second.last_checkpoint)), sha256_file(weights_of(whole.last_checkpoint)));

  const auto alone = run_job(1, bench_.options(GetParam().kind, "alone"));
  const std::vector<double> expected = losses_of(alone.run_dir);
  ASSERT_EQ(losses.size(), expected.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(losses[i], expected[i], 1e-4 * std::max(std::abs(expected[i]), 0.1)) << "step " << i + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, ShardedJob,
                         ::testing::Values(Strategy{{"sft", "full"}, "zero2", ""},
                                           Strategy{{"sft", "full"}, "zero3", ""},
                                           Strategy{{"dpo", "full"}, "zero3", ""},
                                           Strategy{{"dpo", "lora"}, "zero3", ""},
                                           Strategy{{"pt", "full"}, "zero1", ""},
                                           Strategy{{"sft", "lora"}, "", "full_shard auto_wrap"},
                                           Strategy{{"dpo", "full"}, "", "hybrid_shard"}));

}  // namespace
}  // namespace apus::testing
