// The engine with its buffers on a GPU against the same on the CPU.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "apus/comm/fake_communicator.h"
#include "apus/memory/device_memory.h"
#include "apus/parallel/sharded_units.h"
#include "tests/support/tensor_checks.h"

namespace apus::parallel {
namespace {

using apus::testing::random_leaf;
using apus::testing::random_tensor;

const at::Device kGpu(at::kCUDA, 0);
constexpr int64_t kWidth = 65, kLayers = 3, kRows = 9;

class GpuEngine : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  }
};

/// Layers y = tanh(x W^T + b) behind a frozen one; the last unit reads the first weight again.
struct Layers {
  explicit Layers(at::ScalarType dtype) {
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      weights.push_back(random_tensor({kWidth, kWidth}, 10 + layer, dtype).mul(0.1));
      biases.push_back(random_tensor({kWidth}, 20 + layer, dtype));
      weights.back().set_requires_grad(layer > 0);
      biases.back().set_requires_grad(layer > 0);
    }
  }

  ModelUnits units() const {
    ModelUnits model;
    for (size_t layer = 0; layer < weights.size(); ++layer) {
      const std::string name = "layer" + std::to_string(layer);
      model.units.push_back({name, {{name + ".weight", weights[layer]}, {name + ".bias", biases[layer]}}});
    }
    model.units.push_back({"tied", {{"layer1.weight", weights[1]}}});
    return model;
  }

  at::Tensor run(ShardedUnits& engine, at::Tensor x, Recompute recompute) const {
    for (size_t layer = 0; layer < weights.size(); ++layer) {
      x = engine.run(
          layer, x,
          [this, layer](const at::Tensor& in) {
            return at::linear(in, weights[layer], biases[layer]).tanh();
          },
          recompute);
    }
    return engine.run(weights.size(), x, [this](const at::Tensor& in) { return at::linear(in, weights[1]); });
  }

  std::vector<at::Tensor> weights, biases;
};

struct Trained {
  std::vector<double> norms;
  std::map<std::string, at::Tensor> masters;
};

struct Case {
  ShardPolicy policy;
  int world = 1;
  at::ScalarType dtype = at::kFloat;
  ShardedModelOptions options = {};
};

Trained train(const Case& the, at::Device device, int64_t* driver_calls = nullptr) {
  const auto dp = comm::make_fake_communicator({.rank = the.world - 1, .size = the.world});
  const Layers layers(at::kFloat);
  ShardedModelOptions options = the.options;
  options.policy = the.policy;
  options.initial_values = InitialValues::kOwn;
  options.device = device;
  options.compute_dtype = the.dtype;
  options.frozen_dtype = the.dtype;
  ShardedUnits engine(layers.units(), DataParallel::one_axis(*dp), options);
  for (const at::Tensor& bias : layers.biases) EXPECT_EQ(bias.device(), device);
  const at::Tensor rows = random_tensor({2 * kRows, kWidth}, 1, the.dtype).to(device);
  Trained trained;
  for (int step = 0; step < 3; ++step) {
    if (step == 1 && driver_calls) *driver_calls = memory::device_memory(device).driver_allocations;
    for (int micro = 0; micro < 2; ++micro) {
      const at::Tensor out =
          layers.run(engine, rows.slice(0, micro * kRows, (micro + 1) * kRows), options.recompute);
      engine.backward(out.to(at::kFloat).square().mean(),
                      micro == 1 ? MicroBatchPlace::kLast : MicroBatchPlace::kNotLast);
    }
    trained.norms.push_back(engine.update({.lr = 1e-2}));
  }
  EXPECT_EQ(engine.updates(), 3);
  if (driver_calls) *driver_calls = memory::device_memory(device).driver_allocations - *driver_calls;
  for (const auto& parameter : engine.gather_masters()) {
    EXPECT_EQ(parameter.tensor.device(), device);
    trained.masters[parameter.name] = parameter.tensor.detach().cpu().clone();
  }
  return trained;
}

/// How far the two devices may be apart.
struct Bounds {
  double norm = 1e-5;     ///< relative
  double weights = 1e-5;  ///< root mean square; three steps move an element by about 3e-2
};

void expect_same(const Case& the, const Bounds& bounds) {
  const std::string what = the.policy.name + " world " + std::to_string(the.world);
  const Trained cpu = train(the, at::kCPU), gpu = train(the, kGpu);
  for (size_t step = 0; step < cpu.norms.size(); ++step) {
    EXPECT_NEAR(gpu.norms[step], cpu.norms[step], bounds.norm * cpu.norms[step]) << what << " step " << step;
  }
  // With fake peers a gathered master beyond this rank's own part is whatever was there: only world 1 is
  // whole.
  if (the.world > 1) return;
  for (const auto& [name, wanted] : cpu.masters) {
    EXPECT_LE(testing::rms_difference(gpu.masters.at(name), wanted), bounds.weights) << what << " " << name;
  }
}

TEST_F(GpuEngine, TrainsLikeTheCpuUnderEveryPolicy) {
  for (const ShardPolicy& policy :
       {ShardPolicy(Ddp()), ShardPolicy(Zero1()), ShardPolicy(Zero2()), ShardPolicy(Zero3())}) {
    expect_same({.policy = policy}, {});
    // Fake peers leave gathered parameters as they were, so those must be whole from the start.
    if (!policy.param_shard) expect_same({.policy = policy, .world = 2}, {});
  }
}

TEST_F(GpuEngine, TrainsLikeTheCpuWithRecomputeSettingsAndClipping) {
  Case the{.policy = Zero3()};
  the.options.recompute = Recompute::kBlock;
  the.options.settings = [](const nn::NamedParameter& parameter) {
    return parameter.name == "layer1.weight" ? ParameterSettings{.lr_scale = 0.5, .norm_weight = 0.25}
                                             : ParameterSettings{};
  };
  expect_same(the, {});
}

TEST_F(GpuEngine, TrainsInBfloat16WithMastersAndWithout) {
  Case the{.policy = Zero2(), .dtype = at::kBFloat16};
  expect_same(the, {.norm = 2e-2, .weights = 1e-2});
  the.options.optimizer_states = memory::OptimizerStates::kBf16;
  the.options.grad_accum_dtype = at::kBFloat16;
  expect_same(the, {.norm = 2e-2, .weights = 1e-2});
}

TEST_F(GpuEngine, DeterministicModeGivesTheSameBitsUnderEveryPolicy) {
  std::vector<Trained> all;
  for (const ShardPolicy& policy : {ShardPolicy(Ddp()), ShardPolicy(Zero2()), ShardPolicy(Zero3())}) {
    Case the{.policy = policy, .dtype = at::kBFloat16};
    the.options.deterministic = true;
    all.push_back(train(the, kGpu));
  }
  for (const Trained& other : all) {
    EXPECT_EQ(other.norms, all.front().norms);
    for (const auto& [name, wanted] : all.front().masters) {
      testing::expect_equal(other.masters.at(name), wanted, name);
    }
  }
}

TEST_F(GpuEngine, AfterTheFirstStepTheDriverIsNotAskedForMemory) {
  for (const ShardPolicy& policy : {ShardPolicy(Ddp()), ShardPolicy(Zero2()), ShardPolicy(Zero3())}) {
    int64_t calls = -1;
    const int world = policy.param_shard ? 1 : 2;
    train({.policy = policy, .world = world, .dtype = at::kBFloat16}, kGpu, &calls);
    EXPECT_EQ(calls, 0) << policy.name;
  }
}

/// One step whose loss is multiplied by `factor`, then a good one; the weights after each.
struct Skipped {
  at::Tensor start, after_bad, after_good;
  int64_t assumed = 0, settled = 0;
};

Skipped skip_one(double factor, const at::Tensor& found_inf) {
  const auto dp = comm::make_fake_communicator({});
  const Layers layers(at::kFloat);
  ShardedUnits engine(layers.units(), DataParallel::one_axis(*dp), {.policy = Ddp(), .device = kGpu});
  const at::Tensor rows = random_tensor({kRows, kWidth}, 1).to(kGpu);
  const auto values = [&] { return engine.groups()[0]->flat_params().clone(); };
  Skipped result{.start = values()};
  const auto step = [&](double scale, const at::Tensor& flag) {
    engine.backward(layers.run(engine, rows, Recompute::kNone).square().mean() * scale,
                    MicroBatchPlace::kLast);
    return engine.update_async({.lr = 1e-2, .found_inf = flag});
  };
  EXPECT_EQ(step(factor, found_inf).device(), kGpu);
  result.after_bad = values();
  result.assumed = engine.updates();
  step(1.0, {});
  result.after_good = values();
  result.settled = engine.settle_updates();
  return result;
}

TEST_F(GpuEngine, AStepThatIsNotFiniteIsSkippedOnTheDevice) {
  const at::Tensor flag = at::ones({1}, at::TensorOptions().device(kGpu));
  for (const bool by_flag : {false, true}) {
    const Skipped skipped =
        by_flag ? skip_one(1.0, flag) : skip_one(std::numeric_limits<double>::infinity(), {});
    EXPECT_TRUE(skipped.after_bad.equal(skipped.start)) << by_flag;
    EXPECT_EQ(skipped.assumed, 1);
    EXPECT_EQ(skipped.settled, 1) << "the skipped step does not count";
    EXPECT_FALSE(skipped.after_good.equal(skipped.start));
    // A first step moves every element that has a gradient by the rate: t was 1 and not 2.
    EXPECT_NEAR(skipped.after_good.sub(skipped.start).abs().max().item<double>(), 1e-2, 2e-3) << by_flag;
  }
}

TEST_F(GpuEngine, StatesLoadIntoTheDevice) {
  const auto dp = comm::make_fake_communicator({});
  const Layers layers(at::kFloat);
  ShardedUnits engine(layers.units(), DataParallel::one_axis(*dp),
                      {.policy = Zero2(), .compute_dtype = at::kBFloat16, .device = kGpu});
  for (const GroupState& state : engine.optimizer_states()) {
    EXPECT_EQ(state.master.device(), kGpu);
    state.master.fill_(0.3);
  }
  engine.load_finished(7);
  EXPECT_EQ(engine.updates(), 7);
  EXPECT_EQ(engine.settle_updates(), 7);
  EXPECT_EQ(layers.weights[1].detach()[0][0].item<float>(), 0.30078125f) << "0.3 in bf16";
}

}  // namespace
}  // namespace apus::parallel
