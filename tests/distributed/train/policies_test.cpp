// Every data-parallel policy trains the same model: the same bits in deterministic mode, the same numbers otherwise.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/partition_checks.h"

namespace apus::testing {
namespace {

/// Every policy that a world can run, by name.
std::vector<parallel::ShardPolicy> policies_of(int world) {
  std::vector<parallel::ShardPolicy> policies{parallel::Ddp(), parallel::Zero1(), parallel::Zero2(), parallel::Zero3(),
                                              parallel::Fsdp({.sharding = parallel::FsdpSharding::kShardGradOp})};
  if (world % 2 == 0) {
    policies.push_back(parallel::HybridFsdp({.replicate = 2}));
    if (world > 2) policies.push_back(parallel::Zero3(2));
  }
  return policies;
}

void expect_same_bits(const TinyResult& found, const TinyResult& wanted, const std::string& what) {
  EXPECT_EQ(found.losses, wanted.losses) << what;
  EXPECT_EQ(found.grad_norms, wanted.grad_norms) << what;
  ASSERT_EQ(found.after.size(), wanted.after.size()) << what;
  for (size_t index = 0; index < wanted.after.size(); ++index) {
    ASSERT_EQ(found.after[index].name, wanted.after[index].name) << what;
    EXPECT_TRUE(found.after[index].tensor.equal(wanted.after[index].tensor)) << what << ": " << wanted.after[index].name;
  }
}

struct BitCase {
  Job job;
  int world;
  parallel::Recompute recompute;
  int64_t bucket_elements;  // of the reference: other buckets, the same bits
};

class SameBits : public ::testing::TestWithParam<BitCase> {};

TEST_P(SameBits, UnderEveryPolicyInDeterministicMode) {
  const BitCase& the = GetParam();
  TinyRun run{.job = the.job, .recompute = the.recompute, .accumulation = 2, .rows = 18, .steps = 3,
              .deterministic = true};
  run.bucket_elements = the.bucket_elements;
  const TinyResult wanted = train_on(the.world, run);
  run.bucket_elements = 200'000'000;
  run.adjust = [](parallel::ShardedModelOptions& options) { options.poison_released = true; };
  for (const parallel::ShardPolicy& policy : policies_of(the.world)) {
    run.policy = policy;
    expect_same_bits(train_on(the.world, run), wanted, describe(the.world, run));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, SameBits,
    ::testing::Values(BitCase{Job::kFullSft, 2, parallel::Recompute::kNone, 3000},
                      BitCase{Job::kFullSft, 4, parallel::Recompute::kBlock, 200'000'000},
                      BitCase{Job::kLoraDpo, 4, parallel::Recompute::kNone, 200'000'000},
                      BitCase{Job::kFullDpo, 3, parallel::Recompute::kPartial, 5000}));

TEST(Policies, EqualOneRankBeyondRounding) {
  for (const Job job : {Job::kFullSft, Job::kLoraDpo}) {
    const TinyRun one{.job = job, .steps = 10};
    const TinyResult wanted = train_on(1, one);
    const memory::FlatLayout layout = reference_layout(one);
    for (const parallel::ShardPolicy& policy : policies_of(4)) {
      TinyRun run = one;
      run.policy = policy;
      run.accumulation = 3;
      run.recompute = job == Job::kFullSft ? parallel::Recompute::kBlock : parallel::Recompute::kNone;
      const TinyResult found = train_on(4, run);
      expect_same_numbers(found, wanted, job, describe(4, run));
      expect_same_weights(found, wanted, run, layout, describe(4, run));
    }
  }
}

}  // namespace
}  // namespace apus::testing
