#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "apus/parallel/sharded_units.h"
#include "tests/support/tensor_checks.h"

/// A small module and a few steps of its training, for tests that states on the host change no bit.
namespace apus::testing {

/// Layers y = tanh(x W^T + b), the third frozen; the last unit reads the first one's weight again.
class OffloadedLayers {
 public:
  static constexpr int64_t kWidth = 40;
  static constexpr size_t kLayers = 4;

  /// `trains_biases_alone`: few parameters beside a frozen base, as adapters are.
  enum class Trains { kAllButOneLayer, kBiasesAlone };

  explicit OffloadedLayers(Trains trains = Trains::kAllButOneLayer) {
    for (size_t layer = 0; layer < kLayers; ++layer) {
      weights.push_back(random_tensor({kWidth, kWidth}, 10 + layer).mul(0.3));
      biases.push_back(random_tensor({kWidth}, 20 + layer));
      const bool whole = trains == Trains::kAllButOneLayer && layer != 2;
      weights.back().set_requires_grad(whole);
      biases.back().set_requires_grad(whole || trains == Trains::kBiasesAlone);
    }
  }

  parallel::ModelUnits units() const {
    parallel::ModelUnits model;
    for (size_t layer = 0; layer < kLayers; ++layer) {
      const std::string name = "layer" + std::to_string(layer);
      model.units.push_back({name, {{name + ".weight", weights[layer]}, {name + ".bias", biases[layer]}}});
    }
    model.units.push_back({"tied", {{"layer0.weight", weights[0]}}});
    return model;
  }

  at::Tensor run(parallel::ShardedUnits& engine, at::Tensor x, parallel::Recompute recompute) const {
    for (size_t layer = 0; layer < kLayers; ++layer) {
      x = engine.run(
          layer, x,
          [this, layer](const at::Tensor& in) {
            const at::Tensor out = at::linear(in.to(weights[layer].scalar_type()), weights[layer]);
            return (out + biases[layer]).tanh();
          },
          recompute);
    }
    return engine.run(kLayers, x, [this](const at::Tensor& in) {
      return at::linear(in.to(weights[0].scalar_type()), weights[0]);
    });
  }

  std::vector<at::Tensor> weights, biases;
};

/// How the layers are trained.
struct OffloadRun {
  parallel::ShardPolicy policy;
  at::ScalarType dtype = at::kFloat;
  parallel::ShardedModelOptions options = {};
  OffloadedLayers::Trains trains = OffloadedLayers::Trains::kAllButOneLayer;
  int64_t skipped_step = -1;  ///< told to change nothing
  /// The device's share of updates on the host is learnt; false: two fifths, or what options say.
  bool learns_share = false;

  parallel::ShardedModelOptions engine_options() const {
    parallel::ShardedModelOptions result = options;
    result.policy = policy;
    result.compute_dtype = result.frozen_dtype = dtype;
    result.host_piece_elements = 700;
    if (!learns_share && !result.host_device_share) result.host_device_share = 0.4;
    result.poison_released = true;
    result.recompute = parallel::Recompute::kBlock;
    return result;
  }
};

/// What must not differ in a bit.
struct OffloadResult {
  std::vector<double> losses, norms;
  std::map<std::string, at::Tensor> tensors;  ///< masters by name, moments by group

  void expect_equal_to(const OffloadResult& wanted, const std::string& what) const {
    EXPECT_EQ(losses, wanted.losses) << what;
    EXPECT_EQ(norms, wanted.norms) << what;
    ASSERT_EQ(tensors.size(), wanted.tensors.size()) << what;
    for (const auto& [name, tensor] : wanted.tensors) {
      EXPECT_TRUE(tensors.at(name).equal(tensor)) << what << ": " << name;
    }
  }
};

/// Three micro-batches of this rank's own rows, then an update.
inline void take_step(const OffloadedLayers& layers, parallel::ShardedUnits& engine, const OffloadRun& run,
                      int64_t step, OffloadResult& result) {
  constexpr int64_t kMicroBatches = 3, kRows = 2;
  for (int64_t micro = 0; micro < kMicroBatches; ++micro) {
    const uint64_t seed = 100 + 10 * step + micro + 1000 * engine.ranks().dp->rank();
    const at::Tensor rows =
        random_tensor({kRows, OffloadedLayers::kWidth}, seed).to(engine.groups()[0]->device());
    const at::Tensor out = layers.run(engine, rows, engine.options().recompute);
    const at::Tensor loss = out.to(at::kFloat).square().mean();
    result.losses.push_back(loss.item<double>());
    engine.backward(loss, micro + 1 == kMicroBatches ? parallel::MicroBatchPlace::kLast
                                                     : parallel::MicroBatchPlace::kNotLast);
  }
  parallel::UpdateOptions update{.lr = 1e-2, .max_grad_norm = 0.05};
  if (run.skipped_step >= 0)
    update.found_inf =
        random_tensor({1}, 1).to(engine.groups()[0]->device()).fill_(step == run.skipped_step ? 1.0 : 0.0);
  result.norms.push_back(engine.update(update));
}

inline void read_states(parallel::ShardedUnits& engine, OffloadResult& result) {
  for (const auto& parameter : engine.gather_masters())
    result.tensors[parameter.name] = parameter.tensor.detach().cpu().clone();
  for (const auto& state : engine.optimizer_states()) {
    result.tensors[state.group + ".exp_avg"] = state.exp_avg.cpu().clone();
    result.tensors[state.group + ".exp_avg_sq"] = state.exp_avg_sq.cpu().clone();
  }
}

/// Three steps with accumulation and clipping.
inline OffloadResult train_offloaded(const OffloadRun& run, const parallel::DataParallel& ranks) {
  const OffloadedLayers layers(run.trains);
  parallel::ShardedUnits engine(layers.units(), ranks, run.engine_options());
  OffloadResult result;
  for (int64_t step = 0; step < 3; ++step) take_step(layers, engine, run, step, result);
  EXPECT_EQ(engine.updates(), run.skipped_step >= 0 ? 2 : 3);
  read_states(engine, result);
  return result;
}

}  // namespace apus::testing
