// Whole trainings with states on the host: the losses, norms and weights of the same training without, bit by
// bit, since both update on the CPU.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "tests/support/partition_checks.h"
#include "tests/support/residencies.h"

namespace apus::testing {
namespace {

using memory::Residency;
using memory::StateResidency;

void expect_same_bits(const TinyResult& found, const TinyResult& wanted, const std::string& what) {
  EXPECT_EQ(found.losses, wanted.losses) << what;
  EXPECT_EQ(found.grad_norms, wanted.grad_norms) << what;
  for (size_t index = 0; index < wanted.after.size(); ++index) {
    EXPECT_TRUE(found.after.at(index).tensor.equal(wanted.after[index].tensor))
        << what << ": " << wanted.after[index].name;
  }
  for (size_t index = 0; index < wanted.exp_avg_sq.size(); ++index) {
    EXPECT_TRUE(found.exp_avg_sq.at(index).equal(wanted.exp_avg_sq[index])) << what << ": moments " << index;
  }
}

/// Three steps of two micro-batches; clipped, and recomputed so that activations may lie on the host too.
TinyRun short_run(Job job, at::ScalarType dtype) {
  TinyRun run{.job = job, .recompute = parallel::Recompute::kBlock, .accumulation = 2, .steps = 3};
  run.dtype = dtype;
  return run;
}

void expect_offload_keeps_bits(TinyRun run, int world, const std::vector<StateResidency>& residencies,
                               Residency activations = Residency::kDevice) {
  const TinyResult wanted = train_on(world, run);
  run.adjust = [activations](parallel::ShardedModelOptions& options) {
    options.activations = activations;
    options.poison_released = true;
    options.host_piece_elements = 3000;
  };
  for (const StateResidency& residency : residencies) {
    run.policy.residency = residency;
    expect_same_bits(train_on(world, run), wanted, describe(world, run));
  }
}

class OffloadedTraining : public ::testing::TestWithParam<std::tuple<int, at::ScalarType>> {};

TEST_P(OffloadedTraining, KeepsTheBitsUnderZero2AndZero3) {
  const auto [world, dtype] = GetParam();
  TinyRun run = short_run(Job::kFullSft, dtype);
  run.policy = parallel::Zero2();
  expect_offload_keeps_bits(run, world, {kOptimizer, kGradients});
  run.policy = parallel::Zero3();
  expect_offload_keeps_bits(run, world, {kOptimizer, kGradients, kBoth, kAll});
}

INSTANTIATE_TEST_SUITE_P(Matrix, OffloadedTraining,
                         ::testing::Combine(::testing::Values(1, 2, 3),
                                            ::testing::Values(at::kFloat, at::kBFloat16)));

TEST(OffloadedTraining, KeepsTheBitsOfOtherJobsAndPolicies) {
  TinyRun run = short_run(Job::kFullDpo, at::kFloat);
  run.policy = parallel::Zero3();
  expect_offload_keeps_bits(run, 2, {kAll}, Residency::kHost);
  run = short_run(Job::kLoraSft, at::kBFloat16);
  run.policy = parallel::Fsdp();
  expect_offload_keeps_bits(run, 2, {kAll}, Residency::kHost);
  run = short_run(Job::kLoraDpo, at::kFloat);
  run.policy = parallel::Ddp();
  expect_offload_keeps_bits(run, 2, {kOptimizer}, Residency::kHost);
  run = short_run(Job::kFullSft, at::kFloat);
  run.policy = parallel::HybridFsdp({.replicate = 2});
  expect_offload_keeps_bits(run, 4, {kAll}, Residency::kHost);
}

}  // namespace
}  // namespace apus::testing
