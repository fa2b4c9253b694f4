#pragma once

#include <memory>

#include "apus/models/decoder_config.h"
#include "apus/nn/causal_lm.h"
#include "apus/nn/linear.h"
#include "apus/nn/rms_norm.h"
#include "apus/ops/recomputed.h"

namespace apus::models {

/// Grouped-query self-attention with rotary positions; the config says which projections have biases and
/// whether the heads of q and k are normed.
class DecoderAttention final : public nn::Module {
 public:
  DecoderAttention(const DecoderConfig& config, at::ScalarType dtype);

  /// Shapes:  [T, D] -> [T, D]. Drops x once it has been used.
  at::Tensor forward(const ops::Recomputed& x_TD, const nn::PassContext& context) const;

 private:
  int64_t head_dim_;
  nn::Linear q_proj_, k_proj_, v_proj_, o_proj_;
  /// Null without qk_norm.
  std::unique_ptr<nn::RmsNorm> q_norm_, k_norm_;
};

/// The gated feed-forward layer.
class DecoderMlp final : public nn::Module {
 public:
  DecoderMlp(const DecoderConfig& config, at::ScalarType dtype);

  /// Shapes:  [T, D] -> [T, D]. Drops x once it has been used.
  at::Tensor forward(const ops::Recomputed& x_TD, const nn::PassContext& context) const;

 private:
  nn::Linear gate_proj_, up_proj_, down_proj_;
};

/// One decoder layer: norm, attention, residual; norm, feed-forward, residual.
class DecoderBlock final : public nn::Block {
 public:
  DecoderBlock(const DecoderConfig& config, at::ScalarType dtype);

  at::Tensor forward(const at::Tensor& hidden_TD, const nn::PassContext& context) override;

 private:
  nn::RmsNorm input_layernorm_, post_attention_layernorm_;
  DecoderAttention self_attn_;
  DecoderMlp mlp_;
};

}  // namespace apus::models
