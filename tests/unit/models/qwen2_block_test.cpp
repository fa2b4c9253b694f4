#include "models/qwen2_block.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/silu.h>

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
    return x * (x.square().mean(-1, true) + 1e-6).rsqrt() * p.at(name + ".weight");
  }
  at::Tensor heads(const at::Tensor& x, const std::string& name) const {
    return at::linear(x, p.at(name + ".weight"), p.at(name + ".bias")).view({x.size(0), -1, 8});
  }
  at::Tensor operator()(const at::Tensor& hidden) const {
    const at::Tensor x = norm(hidden, "input_layernorm");
    const ops::Rotated turned = ops::rotary(heads(x, "self_attn.q_proj"), heads(x, "self_attn.k_proj"),
                                            context.cos_TH, context.sin_TH);
    const at::Tensor attended = ops::attention(turned.q_TNH, turned.k_TKH, heads(x, "self_attn.v_proj"),
                                               {.lengths = context.rows->lengths});
    const at::Tensor sum = hidden + at::linear(attended.flatten(1), p.at("self_attn.o_proj.weight"));
    const at::Tensor y = norm(sum, "post_attention_layernorm");
    const at::Tensor gated = at::silu(at::linear(y, p.at("mlp.gate_proj.weight")));
    return sum + at::linear(gated * at::linear(y, p.at("mlp.up_proj.weight")), p.at("mlp.down_proj.weight"));
  }
};

TEST(Qwen2Block, IsTheLayerWrittenOut) {
  Qwen2Block block(Qwen2Config{}, at::kFloat);
  PlainLayer plain;
  uint64_t seed = 20;
  for (const auto& [name, tensor] : block.named_parameters()) {
    tensor.set_data(random_tensor(tensor.sizes(), seed++) * 0.3);
    plain.p[name] = tensor;
  }
  plain.context.rows = nn::RowLayout::packed({4, 3});
  const ops::RotaryTables tables = ops::rotary_tables(plain.context.rows->positions_T, 8, 1e4, at::kFloat);
  plain.context.cos_TH = tables.cos_TH;
  plain.context.sin_TH = tables.sin_TH;
  const at::Tensor hidden = random_tensor({7, 32}, 1);
  expect_close(block.forward(hidden, plain.context), plain(hidden), {.absolute = 2e-5, .relative = 1e-5});
}

}  // namespace
}  // namespace apus::models
