#include "models/decoder_block.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tensor.h>

#include <map>

#include "apus/models/init_random.h"
#include "apus/ops/attention.h"
#include "apus/ops/rotary.h"
#include "tests/support/tensor_checks.h"

namespace apus::models {
namespace {

using namespace apus::testing;

// The layer written out on the parameters alone, in HF's order of operations.
struct PlainLayer {
  std::map<std::string, at::Tensor> p;
  nn::PassContext context;

  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    if (!p.contains(name + ".weight")) return x;
    return x * (x.square().mean(-1, true) + 1e-6).rsqrt() * p.at(name + ".weight");
  }
  at::Tensor project(const at::Tensor& x, const std::string& name) const {
    const auto bias = p.find(name + ".bias");
    return at::linear(x, p.at(name + ".weight"), bias == p.end() ? at::Tensor() : bias->second);
  }
  at::Tensor heads(const at::Tensor& x, const std::string& name) const {
    return project(x, name).view({x.size(0), -1, 8});
  }
  at::Tensor operator()(const at::Tensor& hidden) const {
    const at::Tensor x = norm(hidden, "input_layernorm");
    const ops::Rotated turned =
        ops::rotary(norm(heads(x, "self_attn.q_proj"), "self_attn.q_norm"),
                    norm(heads(x, "self_attn.k_proj"), "self_attn.k_norm"), context.cos_TH, context.sin_TH);
    const at::Tensor attended = ops::attention(turned.q_TNH, turned.k_TKH, heads(x, "self_attn.v_proj"),
                                               {.lengths = context.rows->lengths});
    const at::Tensor sum = hidden + project(attended.flatten(1), "self_attn.o_proj");
    const at::Tensor y = norm(sum, "post_attention_layernorm");
    const at::Tensor gated = at::silu(project(y, "mlp.gate_proj"));
    return sum + project(gated * project(y, "mlp.up_proj"), "mlp.down_proj");
  }
};

nn::PassContext two_sequences(at::ScalarType dtype = at::kFloat) {
  nn::PassContext context;
  context.rows = nn::RowLayout::packed({4, 3});
  const ops::RotaryTables tables = ops::rotary_tables(context.rows->positions_T, 8, 1e4, dtype);
  context.cos_TH = tables.cos_TH;
  context.sin_TH = tables.sin_TH;
  return context;
}

void fill(DecoderBlock& block, std::map<std::string, at::Tensor>& parameters) {
  uint64_t seed = 20;
  for (const auto& [name, tensor] : block.named_parameters()) {
    tensor.set_data(random_tensor(tensor.sizes(), seed++, tensor.scalar_type()) * 0.3);
    tensor.set_requires_grad(true);
    parameters[name] = tensor;
  }
}

/// Every kind, and one with each bias and norm.
std::vector<DecoderConfig> configs() {
  std::vector<DecoderConfig> all;
  for (const std::string& kind : decoder_model_types()) all.push_back(decoder_defaults(kind));
  DecoderConfig full = decoder_defaults("qwen3");
  full.qkv_bias = full.o_bias = full.mlp_bias = true;
  all.push_back(full);
  return all;
}

TEST(DecoderBlock, IsTheLayerWrittenOut) {
  for (DecoderConfig config : configs()) {
    SCOPED_TRACE(config.model_type);
    config.rms_norm_eps = 1e-6;
    DecoderBlock block(config, at::kFloat);
    PlainLayer plain{.context = two_sequences()};
    fill(block, plain.p);
    const at::Tensor hidden = random_tensor({7, 32}, 1);
    expect_close(block.forward(hidden, plain.context), plain(hidden), {.absolute = 2e-5, .relative = 1e-5});
  }
}

TEST(DecoderBlock, ALightTapeGivesTheSameBits) {
  for (const DecoderConfig& config : configs()) {
    SCOPED_TRACE(config.model_type);
    DecoderBlock block(config, at::kFloat);
    std::map<std::string, at::Tensor> parameters;
    fill(block, parameters);
    nn::PassContext context = two_sequences();
    std::map<std::string, at::Tensor> wanted;
    at::Tensor output, hidden_grad;
    for (const bool light : {false, true}) {
      context.light_tape = light;
      const at::Tensor hidden = random_leaf({7, 32}, 1);
      const at::Tensor y = block.forward(hidden, context);
      (y * random_tensor({7, 32}, 2)).sum().backward();
      if (light) {
        expect_equal(y, output);
        expect_equal(hidden.grad(), hidden_grad);
      }
      output = y.detach();
      hidden_grad = hidden.grad();
      for (const auto& [name, tensor] : parameters) {
        ASSERT_TRUE(tensor.grad().defined()) << name;
        if (light) expect_equal(tensor.grad(), wanted[name], name);
        wanted[name] = tensor.grad().clone();
        tensor.mutable_grad().reset();
      }
    }
  }
}

TEST(DecoderBlock, FusedOperationsAreTheSameLayer) {
  for (const DecoderConfig& config : configs()) {
    SCOPED_TRACE(config.model_type);
    DecoderBlock block(config, at::kFloat);
    std::map<std::string, at::Tensor> parameters, wanted;
    fill(block, parameters);
    nn::PassContext context = two_sequences();
    at::Tensor output, hidden_grad;
    for (const bool fused : {false, true}) {
      context.light_tape = fused;
      const at::Tensor hidden = random_leaf({7, 32}, 1);
      const at::Tensor y = fused ? block.forward_fused(hidden, context) : block.forward(hidden, context);
      (y * random_tensor({7, 32}, 2)).sum().backward();
      if (fused) {
        expect_close(y, output, {.absolute = 1e-5, .relative = 1e-5});
        expect_close(hidden.grad(), hidden_grad, {.absolute = 1e-4, .relative = 1e-4});
      }
      output = y.detach();
      hidden_grad = hidden.grad();
      for (const auto& [name, tensor] : parameters) {
        if (fused) expect_close(tensor.grad(), wanted[name], {.absolute = 1e-4, .relative = 1e-4}, name);
        wanted[name] = tensor.grad().clone();
        tensor.mutable_grad().reset();
      }
    }
  }
}

/// What a block makes of some rows, and every gradient.
struct RowsMade {
  at::Tensor rows_MD, hidden_grad;
  std::map<std::string, at::Tensor> grads;
};

enum class Form { kPlain, kLight, kFused, kFusedLight };

RowsMade rows_made(DecoderBlock& block, Form form, const at::Tensor& rows_M, bool reads) {
  const bool fused = form == Form::kFused || form == Form::kFusedLight;
  nn::PassContext context = two_sequences(at::kDouble);
  context.light_tape = form == Form::kLight || form == Form::kFusedLight;
  const at::Tensor hidden = random_leaf({7, 32}, 1, at::kDouble);
  const nn::ReadRows read{.rows_M = rows_M};
  at::Tensor y;
  if (reads) {
    y = fused ? block.forward_read_fused(hidden, read, context) : block.forward_read(hidden, read, context);
  } else {
    y = at::index_select(fused ? block.forward_fused(hidden, context) : block.forward(hidden, context), 0,
                         rows_M);
  }
  (y * random_tensor(y.sizes(), 2, at::kDouble)).sum().backward();
  RowsMade made{.rows_MD = y.detach(), .hidden_grad = hidden.grad()};
  for (const auto& [name, tensor] : block.named_parameters()) {
    made.grads[name] = tensor.grad();
    tensor.mutable_grad().reset();
  }
  return made;
}

TEST(DecoderBlock, RowsThatAreReadAloneAreThoseOfAllRowsAndSoAreTheirGradients) {
  constexpr Tolerance kRounding{.absolute = 2e-6, .relative = 1e-6};  // norms compute in fp32
  const at::Tensor rows = at::tensor({1, 2, 2, 6}, at::kLong);
  for (const DecoderConfig& config : configs()) {
    DecoderBlock block(config, at::kDouble);
    std::map<std::string, at::Tensor> parameters;
    fill(block, parameters);
    for (const Form form : {Form::kPlain, Form::kLight, Form::kFused, Form::kFusedLight}) {
      SCOPED_TRACE(config.model_type + ", form " + std::to_string(static_cast<int>(form)));
      const RowsMade wanted = rows_made(block, form, rows, false), found = rows_made(block, form, rows, true);
      expect_close(found.rows_MD, wanted.rows_MD, kRounding);
      expect_close(found.hidden_grad, wanted.hidden_grad, kRounding);
      for (const auto& [name, grad] : wanted.grads) expect_close(found.grads.at(name), grad, kRounding, name);
    }
  }
}

TEST(DecoderBlock, PlacingOnTheCpuRoundsAndLaysNothingTogether) {
  DecoderBlock block(decoder_defaults("qwen2"), at::kFloat);
  std::map<std::string, at::Tensor> parameters;
  fill(block, parameters);
  for (const auto& [name, tensor] : parameters) tensor.set_requires_grad(false);
  block.place({.frozen_dtype = at::kBFloat16});
  for (const auto& [name, tensor] : parameters) {
    EXPECT_EQ(tensor.scalar_type(), at::kBFloat16) << name;
    EXPECT_TRUE(tensor.is_contiguous()) << name;
  }
  for (const nn::JointLinear* joint : block.joint_projections()) EXPECT_FALSE(joint->home());
}

TEST(DecoderBlock, HomesOfItsProjectionsChangeNoNumber) {
  for (const DecoderConfig& config : configs()) {
    SCOPED_TRACE(config.model_type);
    DecoderBlock block(config, at::kFloat);
    std::map<std::string, at::Tensor> parameters;
    fill(block, parameters);
    for (const auto& [name, tensor] : parameters) tensor.set_requires_grad(false);
    const nn::PassContext context = two_sequences();
    const at::Tensor hidden = random_tensor({7, 32}, 1), before = block.forward(hidden, context);
    for (nn::JointLinear* joint : block.joint_projections()) joint->make_home({.room_rank = 8});
    expect_close(block.forward(hidden, context), before, {.absolute = 1e-5});
    expect_close(block.forward_fused(hidden, context), before, {.absolute = 1e-5, .relative = 1e-5});
  }
}

}  // namespace
}  // namespace apus::models
