#include "apus/models/decoder.h"

#include <ATen/Context.h>
#include <ATen/ops/tensor.h>
#include <c10/cuda/CUDAFunctions.h>

#include <map>
#include <string>

#include "apus/models/init_random.h"
#include "apus/nn/dropout_rows.h"
#include "apus/nn/linear.h"
#include "models/decoder_block.h"
#include "tests/support/tensor_checks.h"

namespace apus::models {
namespace {

using namespace apus::testing;
using Tensors = std::map<std::string, at::Tensor>;

class DecoderOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA() || c10::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
  }
};

enum class Trained { kAdapters, kAll };

struct Setting {
  Trained trained = Trained::kAdapters;
  bool light_tape = false;
  bool dropout = false;
  int64_t rank = 8;
  bool padded = false;
  /// A pass without adapters between forward and backward.
  bool reference_between = false;
  /// The last block makes a few rows alone.
  bool reads_few = false;
};

/// Every kind, and one with each bias and norm, at sizes that the kernels take.
std::vector<DecoderConfig> configs() {
  std::vector<DecoderConfig> all;
  for (const std::string& kind : decoder_model_types()) all.push_back(decoder_defaults(kind));
  DecoderConfig full = decoder_defaults("qwen3");
  full.qkv_bias = full.o_bias = full.mlp_bias = true;
  all.push_back(full);
  for (DecoderConfig& config : all) {
    config.hidden_size = 128;
    config.intermediate_size = 176;
    config.head_dim = 64;
  }
  return all;
}

DecoderConfig one_config() {
  return configs().front();
}

/// A model with random values that bf16 holds exactly.
std::unique_ptr<Decoder> model_of(const DecoderConfig& config, at::ScalarType dtype, const Setting& setting) {
  auto model = std::make_unique<Decoder>(config, dtype);
  if (setting.trained == Trained::kAdapters) {
    for (const auto& [path, module] : model->named_modules()) {
      auto* linear = dynamic_cast<nn::Linear*>(module);
      if (linear)
        linear->add_adapter(
            "a", {.rank = setting.rank, .alpha = 16, .dropout = setting.dropout ? 0.25 : 0.0, .path = path},
            dtype);
    }
  } else {
    nn::make_trainable(*model);
  }
  uint64_t seed = 50;
  for (const nn::NamedParameter& parameter : model->named_parameters()) {
    const bool is_norm = parameter.tensor.dim() == 1 && !parameter.name.ends_with("bias");
    const bool trains = parameter.tensor.requires_grad();
    at::Tensor values = random_tensor(parameter.tensor.sizes(), seed++) * 0.08;
    if (is_norm) values = values + 1.0;
    parameter.tensor.set_data(values.to(at::kBFloat16).to(dtype));
    parameter.tensor.set_requires_grad(trains);
  }
  return model;
}

nn::PassContext context_of(const Setting& setting) {
  nn::PassContext context;
  context.rows = setting.padded ? nn::RowLayout::padded({37, 5}, 40) : nn::RowLayout::packed({37, 1, 0, 12});
  context.adapters = {"a"};
  context.light_tape = setting.light_tape;
  if (setting.dropout) context.dropout = nn::dropout_rows(*context.rows, {.seed = 3, .places = {0, 1, 2, 3}});
  return context;
}

at::Tensor tokens_of(const nn::PassContext& context, const DecoderConfig& config) {
  const at::Tensor raw = random_tensor({context.rows->rows()}, 9).abs() * 1000.0;
  return raw.to(at::kLong).remainder(config.vocab_size);
}

/// Some rows of tokens in either layout, one of them twice.
nn::ReadRows few_rows(const nn::PassContext& context, at::Device device) {
  const at::Tensor rows = at::tensor({2, 3, 3, 20, 36, 40, 44}, at::kLong);
  nn::ReadRows read{.rows_M = rows.to(device)};
  if (context.dropout) read.dropout = nn::dropout_at(*context.dropout, rows);
  return read;
}

at::Tensor hidden_of(Decoder& model, const at::Tensor& tokens, nn::PassContext& context,
                     const Setting& setting) {
  model.prepare(context);
  at::Tensor hidden = model.embed(tokens, context);
  std::vector<nn::Block*> blocks = model.blocks();
  if (!setting.reads_few) blocks.push_back(nullptr);
  for (size_t block = 0; block + 1 < blocks.size(); ++block) hidden = blocks[block]->forward(hidden, context);
  if (setting.reads_few)
    hidden = blocks.back()->forward_read(hidden, few_rows(context, tokens.device()), context);
  return model.final_norm(hidden, context);
}

/// Rows of tokens, not of padding.
at::Tensor real_rows(const at::Tensor& hidden, const nn::PassContext& context) {
  if (context.rows->is_packed() || hidden.size(0) < context.rows->rows()) return hidden;
  at::Tensor mask = at::empty({hidden.size(0), 1}, at::kFloat);
  mask.zero_();
  for (int64_t s = 0; s < context.rows->batch(); ++s)
    mask.narrow(0, context.rows->first_row(s), context.rows->lengths[static_cast<size_t>(s)]).fill_(1.0);
  return hidden * mask.to(hidden.device(), hidden.scalar_type());
}

/// The last rows and the gradients of everything trainable.
Tensors run(const DecoderConfig& config, at::Device device, at::ScalarType dtype, const Setting& setting) {
  const std::unique_ptr<Decoder> model = model_of(config, dtype, setting);
  if (device.is_cuda()) {
    model->place({.device = device});
    for (const nn::NamedParameter& parameter : model->named_parameters())
      if (parameter.tensor.requires_grad()) parameter.tensor.set_data(parameter.tensor.detach().to(device));
  }
  nn::PassContext context = context_of(setting);
  const at::Tensor tokens = tokens_of(context, config).to(device);
  const at::Tensor hidden = real_rows(hidden_of(*model, tokens, context, setting), context);
  if (setting.reference_between) {
    const at::NoGradGuard no_grad;
    nn::PassContext reference = context;
    reference.adapters = {};
    hidden_of(*model, tokens, reference, setting);
  }
  (hidden * random_tensor(hidden.sizes(), 8, at::kBFloat16).to(device, dtype)).sum().backward();
  Tensors result = {{"hidden", hidden.detach().cpu()}};
  for (const nn::NamedParameter& parameter : model->named_parameters()) {
    const at::Tensor grad = parameter.tensor.grad();
    if (grad.defined()) result[parameter.name] = grad.detach().cpu();
  }
  return result;
}

double scale_of(const at::Tensor& x) {
  return x.to(at::kDouble).square().mean().sqrt().item<double>();
}

void compare(const DecoderConfig& config, const Setting& setting) {
  const Tensors exact = run(config, at::kCPU, at::kFloat, setting);
  const Tensors found = run(config, at::kCUDA, at::kFloat, setting);
  const Tensors rounded = run(config, at::kCPU, at::kBFloat16, setting);
  const Tensors found_bf16 = run(config, at::kCUDA, at::kBFloat16, setting);
  EXPECT_EQ(found.size(), exact.size());
  for (const auto& [name, wanted] : exact) {
    ASSERT_TRUE(found.contains(name) && found_bf16.contains(name)) << name;
    const double scale = scale_of(wanted);
    EXPECT_LE(rms_difference(found.at(name), wanted), 2e-5 * scale + 1e-7) << name << " in fp32";
    EXPECT_LE(rms_difference(found_bf16.at(name), wanted),
              1.5 * rms_difference(rounded.at(name), wanted) + 2e-3 * scale + 1e-7)
        << name << " in bf16";
  }
}

TEST_F(DecoderOnGpu, EveryKindWithAdaptersIsTheCpusModel) {
  for (const DecoderConfig& config : configs()) {
    SCOPED_TRACE(config.model_type);
    compare(config, {});
  }
}

TEST_F(DecoderOnGpu, EveryKindTrainedWholeIsTheCpusModel) {
  for (const DecoderConfig& config : configs()) {
    SCOPED_TRACE(config.model_type);
    compare(config, {.trained = Trained::kAll});
  }
}

TEST_F(DecoderOnGpu, ALightTapeIsRight) {
  for (const DecoderConfig& config : configs()) {
    SCOPED_TRACE(config.model_type);
    compare(config, {.light_tape = true});
  }
  compare(one_config(), {.trained = Trained::kAll, .light_tape = true});
}

TEST_F(DecoderOnGpu, AnOddRankAndDropoutAreRight) {
  compare(one_config(), {.rank = 5});
  compare(one_config(), {.dropout = true});
}

TEST_F(DecoderOnGpu, PaddedRowsAreRight) {
  compare(one_config(), {.padded = true});
}

TEST_F(DecoderOnGpu, RowsThatAreReadAloneAreRight) {
  for (const DecoderConfig& config : configs()) {
    SCOPED_TRACE(config.model_type);
    compare(config, {.reads_few = true});
    compare(config, {.trained = Trained::kAll, .reads_few = true});
  }
  compare(one_config(), {.light_tape = true, .rank = 5, .reads_few = true});
  compare(one_config(), {.dropout = true, .reads_few = true});
  compare(one_config(), {.padded = true, .reference_between = true, .reads_few = true});
}

TEST_F(DecoderOnGpu, AReferencePassBetweenForwardAndBackwardChangesNothing) {
  compare(one_config(), {.reference_between = true});
}

TEST_F(DecoderOnGpu, PlacesItsFrozenProjectionsTogether) {
  const std::unique_ptr<Decoder> model = model_of(one_config(), at::kBFloat16, {});
  std::map<std::string, at::Tensor> before;
  for (const nn::NamedParameter& parameter : model->named_parameters())
    before[parameter.name] = parameter.tensor.clone();
  model->place({.device = at::kCUDA});
  for (const nn::NamedParameter& parameter : model->named_parameters()) {
    EXPECT_EQ(parameter.tensor.is_cuda(), !parameter.tensor.requires_grad()) << parameter.name;
    expect_equal(parameter.tensor.cpu(), before[parameter.name], parameter.name);
  }
  for (nn::Block* block : model->blocks()) {
    for (nn::JointLinear* joint : dynamic_cast<DecoderBlock&>(*block).joint_projections()) {
      ASSERT_TRUE(joint->home());
      EXPECT_EQ(joint->home()->options().rank, 8);
    }
  }
}

}  // namespace
}  // namespace apus::models
