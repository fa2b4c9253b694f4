// A small decoder on the engine, its projections fused and its gradients written in place, against the CPU.
#include <ATen/Context.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "apus/comm/fake_communicator.h"
#include "apus/models/decoder.h"
#include "apus/nn/linear.h"
#include "apus/parallel/sharded_model.h"
#include "models/decoder_block.h"
#include "tests/support/tensor_checks.h"

namespace apus::parallel {
namespace {

using namespace apus::testing;

const at::Device kGpu(at::kCUDA, 0);

class DecoderEngine : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  }
};

struct Case {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  bool adapters = true;
  Recompute recompute = Recompute::kNone;
  ShardPolicy policy = Zero2();
  at::ScalarType grads = at::kFloat;
};

std::unique_ptr<models::Decoder> model_of(const Case& the) {
  models::DecoderConfig config = models::decoder_defaults("qwen2");
  config.hidden_size = 128;
  config.intermediate_size = 192;
  config.head_dim = 64;
  auto model = std::make_unique<models::Decoder>(config, at::kFloat);
  if (the.adapters) {
    for (const auto& [path, module] : model->named_modules()) {
      if (auto* linear = dynamic_cast<nn::Linear*>(module))
        linear->add_adapter("a", {.rank = 8, .alpha = 16}, at::kFloat);
    }
  } else {
    nn::make_trainable(*model);
  }
  uint64_t seed = 70;
  for (const nn::NamedParameter& parameter : model->named_parameters()) {
    const bool is_norm = parameter.tensor.dim() == 1 && !parameter.name.ends_with("bias");
    const bool trains = parameter.tensor.requires_grad();
    at::Tensor values = random_tensor(parameter.tensor.sizes(), seed++) * 0.08;
    if (is_norm) values = values + 1.0;
    parameter.tensor.set_data(values.to(at::kBFloat16).to(at::kFloat));
    parameter.tensor.set_requires_grad(trains);
  }
  return model;
}

struct Trained {
  std::vector<double> losses, norms;
  bool has_homes = false;
};

/// Three steps of two micro-batches; after each forward a pass without the adapter, as DPO's reference is.
Trained train(const Case& the, at::Device device, at::ScalarType dtype) {
  const auto model = model_of(the);
  const auto dp = comm::make_fake_communicator({});
  ShardedModelOptions options{.policy = the.policy, .recompute = the.recompute};
  options.initial_values = InitialValues::kOwn;
  options.compute_dtype = options.frozen_dtype = dtype;
  options.grad_accum_dtype = the.grads;
  options.device = device;
  ShardedModel engine(*model, *dp, options);
  Trained trained;
  for (nn::Block* block : model->blocks()) {
    for (nn::JointLinear* joint : dynamic_cast<models::DecoderBlock&>(*block).joint_projections())
      trained.has_homes = trained.has_homes || joint->home() != nullptr;
  }
  for (int step = 0; step < 3; ++step) {
    double loss_sum = 0.0;
    for (uint64_t micro = 0; micro < 2; ++micro) {
      nn::PassContext context;
      context.rows = nn::RowLayout::packed({20, 0, 11 + static_cast<int64_t>(micro)});
      context.adapters = {"a"};
      const at::Tensor raw = random_tensor({context.rows->rows()}, 9 + micro).abs() * 1000.0;
      const at::Tensor tokens = raw.to(at::kLong).remainder(128).to(device);
      const at::Tensor hidden = engine.forward(tokens, context);
      const at::Tensor loss = engine.token_log_probs(hidden, tokens, context).mean() * -0.5;
      {
        const at::NoGradGuard no_grad;
        nn::PassContext reference = context;
        reference.adapters = {};
        engine.forward(tokens, reference);
      }
      engine.backward(loss, micro == 1 ? MicroBatchPlace::kLast : MicroBatchPlace::kNotLast);
      loss_sum += loss.item<double>();
    }
    trained.losses.push_back(loss_sum);
    trained.norms.push_back(engine.update({.lr = 1e-2}));
  }
  return trained;
}

void expect_same(const Case& the) {
  const Trained cpu = train(the, at::kCPU, at::kFloat), gpu = train(the, kGpu, the.dtype);
  const double loose = the.dtype == at::kFloat ? 1.0 : 100.0;
  for (size_t step = 0; step < cpu.losses.size(); ++step) {
    EXPECT_NEAR(gpu.losses[step], cpu.losses[step], 1e-4 * loose * cpu.losses[step])
        << the.name << ", step " << step;
    EXPECT_NEAR(gpu.norms[step], cpu.norms[step], 5e-4 * loose * cpu.norms[step])
        << the.name << ", step " << step;
  }
  EXPECT_LT(gpu.losses.back(), gpu.losses.front()) << the.name;
  const bool replicated = !the.policy.param_shard;
  EXPECT_EQ(gpu.has_homes, the.adapters && replicated) << the.name;
}

TEST_F(DecoderEngine, AdaptersTrainAsOnTheCpu) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kPartial, Recompute::kBlock}) {
    expect_same({.name = "fp32", .recompute = recompute});
    expect_same({.name = "bf16", .dtype = at::kBFloat16, .recompute = recompute});
  }
}

TEST_F(DecoderEngine, AllWeightsTrainAsOnTheCpu) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kPartial, Recompute::kBlock}) {
    expect_same({.name = "fp32", .adapters = false, .recompute = recompute});
    expect_same({.name = "bf16", .dtype = at::kBFloat16, .adapters = false, .recompute = recompute});
  }
  expect_same({.name = "bf16 gradients", .dtype = at::kBFloat16, .adapters = false, .grads = at::kBFloat16});
}

TEST_F(DecoderEngine, ShardedBasesTrainAsOnTheCpu) {
  expect_same({.name = "adapters on a sharded base", .recompute = Recompute::kBlock, .policy = Zero3()});
  expect_same(
      {.name = "sharded weights", .adapters = false, .recompute = Recompute::kPartial, .policy = Zero3()});
}

}  // namespace
}  // namespace apus::parallel
