// What a rank holds, against the formulas of docs/design/{ddp,zero1,zero2,zero3,fsdp,hybrid_fsdp}.md: a model
// of 52 million parameters on four ranks, with so few rows that activations do not show.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "apus/comm/device_mesh.h"
#include "apus/parallel/sharded_units.h"
#include "tests/support/memory_meter.h"
#include "tests/support/policies.h"
#include "tests/support/rank_threads.h"
#include "tests/support/tensor_checks.h"

namespace apus::parallel {
namespace {

using apus::testing::MemoryMeter;

constexpr int kWorld = 4;
constexpr int64_t kWidth = 1024, kUnits = 50;
constexpr int64_t kUnitElements = kWidth * kWidth;  // no padding: a multiple of 4 x 1,024
constexpr int64_t kBucketUnits = 6;

/// Layers x W^T; the first and the last have slots of their own, as embedding and head.
struct WideLayers {
  explicit WideLayers(at::ScalarType dtype) {
    for (int64_t unit = 0; unit < kUnits; ++unit) {
      weights.push_back(at::full({kWidth, kWidth}, 1.0 / kWidth, dtype).set_requires_grad(true));
    }
  }
  ModelUnits units() const {
    ModelUnits model;
    for (size_t unit = 0; unit < weights.size(); ++unit) {
      const std::string name = "unit" + std::to_string(unit);
      const bool ends = unit == 0 || unit + 1 == weights.size();
      model.units.push_back(
          {name, {{name + ".weight", weights[unit]}}, ends ? SlotKind::kOwn : SlotKind::kShared});
    }
    return model;
  }
  at::Tensor loss(ShardedUnits& engine) const {
    at::Tensor x = at::full({2, kWidth}, 1.0, weights[0].scalar_type());
    for (size_t unit = 0; unit < weights.size(); ++unit) {
      x = engine.run(unit, x,
                     [weight = weights[unit]](const at::Tensor& in) { return at::linear(in, weight); });
    }
    return x.to(at::kFloat).sum();
  }

  std::vector<at::Tensor> weights;
};

/// The pages' formulas in bytes, for elements P, of which a unit has u and a bucket b.
struct Formula {
  Formula(const ShardPolicy& the_policy, double bytes_an_element)
      : policy(the_policy), size(bytes_an_element), n(kWorld / the_policy.replicate) {}

  /// Parameters, moments and masters: what is there between steps, but for gradients.
  double states() const {
    const double masters = size < 4 ? 4 : 0;
    return P * size / (policy.param_shard ? n : 1) + P * (8 + masters) / (policy.opt_shard ? n : 1);
  }
  /// Gradients that add up during a step.
  double accumulated() const { return 4 * P / (policy.grad_shard ? n : 1); }
  /// Full gradients that are filled (one) or reduced (two), and what Gloo receives while it reduces (two).
  /// Where gradients stay whole, what Gloo needs while it reduces or, if that is more, while it gathers after
  /// an update.
  double reducing() const {
    const double elements = policy.param_shard ? u : kBucketUnits * u, group = 4 * elements;
    if (policy.grad_shard) return 3 * group + 2 * (group + group / n);
    const double gathering = size * P / n + 2 * size * elements;
    return policy.opt_shard ? std::max(2 * group + group / n, gathering) : 0;
  }
  /// What the tape makes of one unit before it is added.
  double from_tape() const { return size * u; }
  double gathered() const {
    if (!policy.param_shard) return 0;
    const int kept_by = policy.backward_ranks(n);
    if (kept_by == 1) return size * P;
    const double slots = 2 * size * u + size * u;  // of the blocks; of the embedding or the head
    return slots + (kept_by < n ? size * P / kept_by : 0);
  }
  double peak() const { return states() + accumulated() + reducing() + from_tape() + gathered(); }

  static constexpr double u = kUnitElements, P = static_cast<double>(kUnits) * kUnitElements;
  ShardPolicy policy;
  double size;
  int n;
};

struct MemoryCase {
  ShardPolicy policy;
  at::ScalarType dtype = at::kFloat;
};

std::vector<MemoryCase> memory_cases() {
  std::vector<MemoryCase> cases;
  for (const ShardPolicy& policy : apus::testing::all_policies()) cases.push_back({policy});
  cases.push_back({Ddp(), at::kBFloat16});
  cases.push_back({Zero2(), at::kBFloat16});
  cases.push_back({Zero3(), at::kBFloat16});
  return cases;
}

class PeakMemory : public ::testing::TestWithParam<MemoryCase> {};

TEST_P(PeakMemory, FollowsTheFormulaWithinFivePercent) {
  const MemoryCase& the = GetParam();
  const Formula formula(the.policy, static_cast<double>(c10::elementSize(the.dtype)));
  static_assert(Formula::P >= 50e6);
  apus::testing::run_ranks(kWorld, [&](std::shared_ptr<comm::Communicator> world) {
    const comm::DeviceMesh mesh(world, the.policy.mesh());
    MemoryMeter meter;
    const WideLayers layers(the.dtype);
    ShardedUnits engine(layers.units(), DataParallel::of(mesh),
                        {.policy = the.policy,
                         .bucket_elements = kBucketUnits * kUnitElements,
                         .initial_values = InitialValues::kOwn});
    EXPECT_NEAR(static_cast<double>(meter.live_bytes()), formula.states(), 64 * 1024) << "states";
    meter.reset_peak();
    for (int step = 0; step < 2; ++step) {
      engine.backward(layers.loss(engine), MicroBatchPlace::kNotLast);
      engine.backward(layers.loss(engine), MicroBatchPlace::kLast);
      engine.update({.lr = 1e-3});
    }
    EXPECT_NEAR(static_cast<double>(meter.peak_bytes()), formula.peak(), 0.05 * formula.peak())
        << the.policy.name << ", rank " << world->rank() << ": states " << formula.states() << ", gradients "
        << formula.accumulated() << ", in reduction " << formula.reducing() << ", gathered "
        << formula.gathered();
  });
}

INSTANTIATE_TEST_SUITE_P(Policies, PeakMemory, ::testing::ValuesIn(memory_cases()), [](const auto& info) {
  const bool partition = std::holds_alternative<int>(info.param.policy.reshard_after_forward);
  return info.param.policy.name + (partition ? "_hpz" : "") +
         (info.param.dtype == at::kFloat ? "_fp32" : "_bf16");
});

}  // namespace
}  // namespace apus::parallel
