#pragma once

#include "apus/models/qwen2.h"
#include "apus/nn/linear.h"
#include "apus/ops/recomputed.h"

namespace apus::models {

/// Grouped-query self-attention with rotary positions; q, k and v have biases, o has none.
class Qwen2Attention final : public nn::Module {
 public:
  Qwen2Attention(const Qwen2Config& config, at::ScalarType dtype);

  /// Shapes:  [T, D] -> [T, D]. Drops x once it has been used.
  at::Tensor forward(const ops::Recomputed& x_TD, const nn::PassContext& context) const;

 private:
  int64_t head_dim_;
  nn::Linear q_proj_, k_proj_, v_proj_, o_proj_;
};

/// The gated feed-forward layer.
class Qwen2Mlp final : public nn::Module {
 public:
  Qwen2Mlp(const Qwen2Config& config, at::ScalarType dtype);

  /// Shapes:  [T, D] -> [T, D]. Drops x once it has been used.
  at::Tensor forward(const ops::Recomputed& x_TD, const nn::PassContext& context) const;

 private:
  nn::Linear gate_proj_, up_proj_, down_proj_;
};

/// One decoder layer: norm, attention, residual; norm, feed-forward, residual.
class Qwen2Block final : public nn::Block {
 public:
  Qwen2Block(const Qwen2Config& config, at::ScalarType dtype);

  at::Tensor forward(const at::Tensor& hidden_TD, const nn::PassContext& context) override;

 private:
  nn::RmsNorm input_layernorm_, post_attention_layernorm_;
  Qwen2Attention self_attn_;
  Qwen2Mlp mlp_;
};

}  // namespace apus::models
