#include "user_module.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/sin.h>

constexpr int64_t kWidth = 24, kLayers = 4, kRows = 8;

UserMlp::UserMlp() {
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    layers.push_back(register_module("layer" + std::to_string(layer), torch::nn::Linear(kWidth, kWidth)));
  }
}

apus::parallel::ModelUnits units_of(const UserMlp& mlp) {
  apus::parallel::ModelUnits model;
  for (size_t layer = 0; layer < mlp.layers.size(); ++layer) {
    const std::string name = "layer" + std::to_string(layer);
    model.units.push_back(
        {name, {{name + ".weight", mlp.layers[layer]->weight}, {name + ".bias", mlp.layers[layer]->bias}}});
  }
  return model;
}

at::Tensor run(apus::parallel::ShardedUnits& engine, const UserMlp& mlp, at::Tensor x) {
  for (size_t layer = 0; layer < mlp.layers.size(); ++layer) {
    x = engine.run(layer, x, [linear = mlp.layers[layer]](const at::Tensor& input) mutable {
      return linear->forward(input).tanh();
    });
  }
  return x;
}

std::pair<at::Tensor, at::Tensor> rows_of(int rank, int micro_batch) {
  const at::Tensor x = at::sin(at::arange(kRows * kWidth, at::kFloat) * (1.0 + rank + 10.0 * micro_batch));
  return {x.view({kRows, kWidth}), x.view({kRows, kWidth}).roll(1, 1) * 0.5};
}
