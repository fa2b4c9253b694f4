// Every data-parallel policy gives the same bits in deterministic mode; equality_matrix_test.cpp has the
// numbers without it.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/partition_checks.h"
#include "tests/support/policies.h"

namespace apus::testing {
namespace {

void expect_same_bits(const TinyResult& found, const TinyResult& wanted, const std::string& what) {
  EXPECT_EQ(found.losses, wanted.losses) << what;
  EXPECT_EQ(found.grad_norms, wanted.grad_norms) << what;
  ASSERT_EQ(found.after.size(), wanted.after.size()) << what;
  for (size_t index = 0; index < wanted.after.size(); ++index) {
    ASSERT_EQ(found.after[index].name, wanted.after[index].name) << what;
    EXPECT_TRUE(found.after[index].tensor.equal(wanted.after[index].tensor))
        << what << ": " << wanted.after[index].name;
  }
}

/// Three steps of two micro-batches, the last of an epoch with fewer rows than ranks.
TinyRun deterministic_run(Job job, int world) {
  return {.job = job, .accumulation = 2, .rows = 4 * world + 1, .steps = 3, .deterministic = true};
}

/// Runs every policy that fits the world, each with other buckets than the first, with and without overlap,
/// and expects one run's bits of all. `recompute` says what a policy's ordinal recomputes.
void expect_one_result(TinyRun run, int world, const std::function<parallel::Recompute(int)>& recompute) {
  run.bucket_elements = 3000;
  run.recompute = recompute(0);
  const TinyResult wanted = train_on(world, run);
  run.bucket_elements = 200'000'000;
  int ordinal = 0;
  for (const parallel::ShardPolicy& policy : policies_for(world)) {
    run.policy = policy;
    run.recompute = recompute(ordinal);
    const bool overlap = ordinal++ % 4 < 2;
    run.adjust = [overlap](parallel::ShardedModelOptions& options) {
      options.poison_released = true;
      options.overlap_comm = overlap;
    };
    expect_same_bits(train_on(world, run), wanted, describe(world, run));
  }
}

class SameBits : public ::testing::TestWithParam<std::tuple<Job, int>> {};

TEST_P(SameBits, UnderEveryPolicyInDeterministicMode) {
  const auto [job, world] = GetParam();
  // A block that is run again gives the bits of the first run.
  expect_one_result(deterministic_run(job, world), world, [](int ordinal) {
    return ordinal % 2 == 0 ? parallel::Recompute::kNone : parallel::Recompute::kBlock;
  });
}

INSTANTIATE_TEST_SUITE_P(Jobs, SameBits,
                         ::testing::Combine(::testing::Values(Job::kFullSft, Job::kFullDpo, Job::kLoraSft,
                                                              Job::kLoraDpo),
                                            ::testing::Values(2, 3, 4)));

TEST(DeterministicMode, ALightTapeHasTheSameBitsUnderEveryPolicy) {
  for (const Job job : {Job::kFullSft, Job::kLoraDpo}) {
    expect_one_result(deterministic_run(job, 4), 4, [](int) { return parallel::Recompute::kPartial; });
  }
}

TEST(DeterministicMode, Bfloat16HasTheSameBitsToo) {
  TinyRun run = deterministic_run(Job::kFullSft, 4);
  run.dtype = at::kBFloat16;
  run.adjust = [](parallel::ShardedModelOptions& options) { options.reduce_dtype = at::kBFloat16; };
  const TinyResult wanted = train_on(4, run);
  for (const parallel::ShardPolicy& policy : policies_for(4)) {
    run.policy = policy;
    expect_same_bits(train_on(4, run), wanted, describe(4, run));
  }
}

/// True if two runs end in the same weights, bit by bit.
bool same_weights(const TinyResult& a, const TinyResult& b) {
  for (size_t index = 0; index < a.after.size(); ++index) {
    if (!a.after[index].tensor.equal(b.after.at(index).tensor)) return false;
  }
  return true;
}

TEST(DeterministicMode, IsWhatMakesTheBitsTheSame) {
  // Rules a and b of numbers.md, broken one at a time: reduce once or after every micro-batch; buckets cut
  // elsewhere.
  TinyRun plain = deterministic_run(Job::kFullSft, 4);
  plain.deterministic = false;
  const TinyResult ddp = train_on(4, plain);
  TinyRun other = plain;
  other.policy = parallel::Zero2();
  EXPECT_FALSE(same_weights(train_on(4, other), ddp)) << "the sum over micro-batches goes first or last";
  other.policy = parallel::Ddp();
  other.bucket_elements = 3000;
  EXPECT_FALSE(same_weights(train_on(4, other), ddp)) << "all_reduce adds in an order that follows the cut";
  EXPECT_TRUE(same_weights(train_on(4, plain), ddp)) << "and yet a run repeats itself";
}

/// Bits of every policy against Ddp's, after `adjust`.
void expect_same_bits_with(TinyRun run, const std::function<void(parallel::ShardedModelOptions&)>& adjust) {
  run.deterministic = true;
  run.accumulation = 2;
  run.rows = 12;
  run.steps = 2;
  run.adjust = adjust;
  const TinyResult wanted = train_on(2, run);
  for (const parallel::ShardPolicy& policy : policies_for(2)) {
    run.policy = policy;
    expect_same_bits(train_on(2, run), wanted, describe(2, run));
  }
}

TEST(Policies, KeepTheBitsWithBfloat16Gradients) {
  // pitfalls.md row 37
  expect_same_bits_with({.job = Job::kFullSft, .dtype = at::kBFloat16},
                        [](parallel::ShardedModelOptions& options) {
                          options.reduce_dtype = at::kBFloat16;
                          options.grad_accum_dtype = at::kBFloat16;
                        });
}

TEST(Policies, KeepTheBitsWithFp32AdaptersBesideABfloat16Base) {
  // pitfalls.md row 17: base and adapters of two dtypes were mixed up in one gathered buffer
  expect_same_bits_with({.job = Job::kLoraSft, .dtype = at::kBFloat16},
                        [](parallel::ShardedModelOptions& options) { options.compute_dtype.reset(); });
}

TEST(Policies, KeepTheBitsWithSettingsOfSingleParameters) {
  expect_same_bits_with({.job = Job::kFullSft}, [](parallel::ShardedModelOptions& options) {
    options.settings = [](const nn::NamedParameter& parameter) {
      const bool norm = parameter.name.find("norm") != std::string::npos;
      return parallel::ParameterSettings{.lr_scale = norm ? 0.1 : 1.0, .norm_weight = norm ? 0.5 : 1.0};
    };
  });
}

TEST(Policies, KeepTheBitsWithoutOverlapAndWithChosenBlocksRecomputed) {
  expect_same_bits_with({.job = Job::kFullSft, .recompute = parallel::Recompute::kBlock},
                        [](parallel::ShardedModelOptions& options) {
                          options.overlap_comm = false;
                          options.recompute_blocks = {1};
                        });
}

}  // namespace
}  // namespace apus::testing
