// A module of the user's, written for one device with libtorch's own classes: apus sees its parameters and
// calls it.
#pragma once

#include <apus/parallel/sharded_units.h>

#include <torch/nn/modules/linear.h>

#include <string>
#include <utility>
#include <vector>

/// A stack of tanh layers.
struct UserMlp : torch::nn::Module {
  UserMlp();

  std::vector<torch::nn::Linear> layers;
};

/// The layers as units of the engine, each with its parameters.
apus::parallel::ModelUnits units_of(const UserMlp& mlp);

/// The module's forward, layer by layer through the engine.
at::Tensor run(apus::parallel::ShardedUnits& engine, const UserMlp& mlp, at::Tensor x);

/// Inputs and targets of one micro-batch, others on each rank.
std::pair<at::Tensor, at::Tensor> rows_of(int rank, int micro_batch);
