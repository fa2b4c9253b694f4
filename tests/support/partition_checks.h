#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/support/rank_threads.h"
#include "tests/support/tiny_training.h"

/// The partition-invariance rule of numbers.md point 1 as test code.
namespace apus::testing {

/// Runs the job on `world` rank threads; rank 0's result.
inline TinyResult train_on(int world, const TinyRun& run) {
  TinyResult result;
  run_ranks(world, [&](std::shared_ptr<comm::Communicator> dp) {
    TinyResult own = train_tiny(run, dp);
    if (dp->rank() == 0) result = std::move(own);
  });
  return result;
}

inline std::string describe(int world, const TinyRun& run) {
  return detail::concat(job_name(run.job), ", ", run.policy.name, ", world ", world, ", micro ",
                        run.micro_batch_rows, ", accumulation ", run.accumulation,
                        run.recompute == parallel::Recompute::kNone    ? ""
                        : run.recompute == parallel::Recompute::kBlock ? ", recompute"
                                                                       : ", partial recompute",
                        run.layout == data::BatchLayout::kPacked ? ", packed" : "", ", bucket ",
                        run.bucket_elements);
}

inline void expect_same_numbers(const TinyResult& found, const TinyResult& wanted, Job job,
                                const std::string& what) {
  ASSERT_EQ(found.losses.size(), wanted.losses.size()) << what;
  const double norm_tolerance = is_dpo(job) ? 5e-5 : 1e-5;
  for (size_t step = 0; step < wanted.losses.size(); ++step) {
    const double scale = std::max(std::abs(wanted.losses[step]), 0.1);
    EXPECT_NEAR(found.losses[step], wanted.losses[step], 1e-5 * scale) << what << ", step " << step;
    EXPECT_NEAR(found.grad_norms[step], wanted.grad_norms[step], norm_tolerance * wanted.grad_norms[step])
        << what << ", step " << step;
  }
}

/// Elements with a root-mean-square gradient of at least 1e-7 in the reference's second moments, as 0 or 1.
inline at::Tensor counted_elements(const TinyResult& wanted, size_t index, double beta2) {
  const double correction = 1.0 - std::pow(beta2, static_cast<double>(wanted.losses.size()));
  return wanted.exp_avg_sq[index].div(correction).sqrt().ge(1e-7);
}

/// The weights' rule. Both results come from one group, so that flat moments line up with the parameters.
inline void expect_same_weights(const TinyResult& found, const TinyResult& wanted, const TinyRun& run,
                                const memory::FlatLayout& layout, const std::string& what) {
  const at::Tensor counted = counted_elements(wanted, 0, 0.95);
  double difference_sum = 0, update_sum = 0, outside = 0, total = 0, largest_difference = 0;
  const double near = std::max(2e-6, 1e-3 * run.learning_rate);
  for (size_t index = 0; index < wanted.after.size(); ++index) {
    ASSERT_EQ(found.after[index].name, wanted.after[index].name) << what;
    const auto range = layout.range_of(static_cast<int64_t>(index));
    const at::Tensor mask = counted.slice(0, range.begin, range.end).to(at::kDouble);
    const at::Tensor difference =
        (found.after[index].tensor - wanted.after[index].tensor).reshape({-1}).to(at::kDouble) * mask;
    const at::Tensor update =
        (wanted.after[index].tensor - wanted.before[index].tensor).reshape({-1}).to(at::kDouble) * mask;
    difference_sum += difference.square().sum().item<double>();
    update_sum += update.square().sum().item<double>();
    outside += difference.abs().gt(near).sum().item<double>();
    total += mask.sum().item<double>();
    largest_difference = std::max(largest_difference, difference.abs().max().item<double>());
  }
  ASSERT_GT(total, 0) << what;
  EXPECT_LE(outside / total, 1e-3) << what;
  EXPECT_LE(largest_difference, run.learning_rate * static_cast<double>(run.steps) / 2) << what;
  EXPECT_LE(std::sqrt(difference_sum), 1e-4 * std::sqrt(update_sum)) << what;
}

/// The layout of the single group of a world of one.
inline memory::FlatLayout reference_layout(const TinyRun& run) {
  const auto dp = comm::GlooCommunicator::create(comm::make_hash_store(), {});
  const auto model = tiny_model(run);
  parallel::ShardedModel engine(*model, *dp, {.policy = parallel::Ddp()});
  return engine.groups().at(0)->layout();
}

}  // namespace apus::testing
