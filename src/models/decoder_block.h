#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "apus/models/decoder_config.h"
#include "apus/nn/causal_lm.h"
#include "apus/nn/joint_linear.h"
#include "apus/nn/linear.h"
#include "apus/nn/rms_norm.h"
#include "apus/ops/recomputed.h"
#include "apus/ops/rotary.h"

namespace apus::models {

/// What goes on behind a block's attention, where rows no longer meet: all rows, or those that are read.
struct RowsBehind {
  const nn::PassContext& context;      ///< of these rows; its layout and rotary tables are not looked at
  const nn::ReadRows* read = nullptr;  ///< null: all rows

  /// These rows of x; in rows with `room` where they are copied on a GPU.
  at::Tensor of(const at::Tensor& x_TD, ops::RowRoom room = {}) const;
};

/// Grouped-query self-attention with rotary positions; the config says which projections have biases and
/// whether the heads of q and k are normed.
class DecoderAttention final : public nn::Module {
 public:
  DecoderAttention(const DecoderConfig& config, at::ScalarType dtype);

  /// Shapes:  [T, D] -> [M, D]. Drops x once it has been used.
  at::Tensor forward(const ops::Recomputed& x_TD, const nn::PassContext& context,
                     const RowsBehind& behind) const;

  /// residual [M, D] + forward(x), by fused operations; x in rows with qkv().input_room().
  at::Tensor forward_fused(const at::Tensor& x_TD, const at::Tensor& residual_MD,
                           std::function<at::Tensor()> remake_x, const nn::PassContext& context,
                           const RowsBehind& behind) const;

  nn::JointLinear& qkv() { return qkv_; }
  nn::JointLinear& output() { return output_; }

 private:
  ops::Qkv turned_heads(const at::Tensor& qkv_TC, const nn::PassContext& context) const;

  int64_t head_dim_;
  /// Query heads that share a key/value head.
  int64_t group_;
  nn::Linear q_proj_, k_proj_, v_proj_, o_proj_;
  /// Null without qk_norm.
  std::unique_ptr<nn::RmsNorm> q_norm_, k_norm_;
  nn::JointLinear qkv_, output_;
};

/// The gated feed-forward layer.
class DecoderMlp final : public nn::Module {
 public:
  DecoderMlp(const DecoderConfig& config, at::ScalarType dtype);

  /// Shapes:  [T, D] -> [T, D]. Drops x once it has been used.
  at::Tensor forward(const ops::Recomputed& x_TD, const nn::PassContext& context) const;

  /// residual + forward(x), by fused operations; x in rows with gate_up().input_room().
  at::Tensor forward_fused(const at::Tensor& x_TD, const at::Tensor& residual_TD,
                           std::function<at::Tensor()> remake_x, const nn::PassContext& context) const;

  nn::JointLinear& gate_up() { return gate_up_; }
  nn::JointLinear& down() { return down_; }

 private:
  nn::Linear gate_proj_, up_proj_, down_proj_;
  nn::JointLinear gate_up_, down_;
};

/// One decoder layer: norm, attention, residual; norm, feed-forward, residual.
class DecoderBlock final : public nn::Block {
 public:
  DecoderBlock(const DecoderConfig& config, at::ScalarType dtype);

  /// On a GPU forward_fused, elsewhere the layer operation by operation.
  at::Tensor forward(const at::Tensor& hidden_TD, const nn::PassContext& context) override;

  /// The output projection, the feed-forward layer and both additions see the rows that are read alone.
  at::Tensor forward_read(const at::Tensor& hidden_TD, const nn::ReadRows& read,
                          const nn::PassContext& context) override;

  /// The same by fused operations: q, k and v as one projection, gate and up as one, residuals added where
  /// projections write, every maker of rows leaving room for the adapters of their reader. Its forms on the
  /// CPU are compositions, so that it can be tested there.
  at::Tensor forward_fused(const at::Tensor& hidden_TD, const nn::PassContext& context);
  /// The same of forward_read().
  at::Tensor forward_read_fused(const at::Tensor& hidden_TD, const nn::ReadRows& read,
                                const nn::PassContext& context);

  /// Projections that read one input get a home together on a GPU.
  void place(const nn::PlaceOptions& options) override;
  /// The projections that are computed as one.
  std::vector<nn::JointLinear*> joint_projections();

 private:
  at::Tensor run(const at::Tensor& hidden_TD, const nn::PassContext& context, const RowsBehind& behind);
  at::Tensor run_fused(const at::Tensor& hidden_TD, const nn::PassContext& context, const RowsBehind& behind);

  nn::RmsNorm input_layernorm_, post_attention_layernorm_;
  DecoderAttention self_attn_;
  DecoderMlp mlp_;
};

}  // namespace apus::models
