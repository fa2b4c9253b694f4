#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "apus/base/api.h"
#include "apus/models/decoder_config.h"
#include "apus/models/rope.h"
#include "apus/nn/causal_lm.h"
#include "apus/nn/embedding.h"
#include "apus/nn/rms_norm.h"

namespace apus::ops {
class AttentionPlans;
}

namespace apus::models {

/// A dense decoder on one device: embedding, pre-norm blocks of grouped-query attention with rotary positions
/// and SwiGLU, final norm, vocabulary projection. Qwen2 and 2.5, Qwen3, Llama and SmolLM2, InternLM3, Mistral
/// are this one class with different biases, norms and rotary rules.
///
/// Parameter names are Hugging Face's: "model.embed_tokens.weight", "model.layers.N.self_attn.q_proj.weight",
/// "model.layers.N.self_attn.q_norm.weight" (Qwen3), "model.layers.N.mlp.down_proj.weight",
/// "model.norm.weight", "lm_head.weight" (untied models only).
/// Source:  Touvron et al., "LLaMA", 2023; Qwen team, "Qwen2 technical report", 2024, "Qwen3 technical
///          report", 2025; Jiang et al., "Mistral 7B", 2023; layout and rounding as Hugging Face's classes.
class APUS_API Decoder final : public nn::CausalLm {
 public:
  /// Parameters are unset and frozen; load_pretrained or init_random fills them.
  /// Throws:  ConfigError as ops::rope_frequencies.
  Decoder(const DecoderConfig& config, at::ScalarType dtype, RopeLength rope_length = RopeLength::kSequence);

  /// Makes the rotary tables of the rows, in the embedding's dtype and on its device; on a GPU also the rows
  /// as its attention reads them.
  /// Throws:  NotSupported for a sequence beyond the config's sliding_window, and as Rope::tables.
  void prepare(nn::PassContext& context) override;
  at::Tensor embed(const at::Tensor& tokens_T, const nn::PassContext& context) override;
  std::vector<nn::Block*> blocks() override;
  at::Tensor final_norm(const at::Tensor& hidden_MD, const nn::PassContext& context) override;
  at::Tensor head_weight(const nn::PassContext& context) const override;
  /// "model.embed_tokens.weight" and adapters' copies of it.
  std::vector<nn::NamedParameter> embed_parameters() override;
  /// Throws:  ShapeError if there is no such block.
  std::vector<nn::NamedParameter> block_parameters(int64_t index) override;
  /// "model.norm.weight", the head, or the embedding where tied, and adapters' copies of the head.
  std::vector<nn::NamedParameter> head_parameters() override;
  /// Column: q, k, v, gate, up. Row: o, down. Vocabulary: embedding, head. Sequence: norms. Norms of q's and
  /// k's heads are whole on every rank.
  nn::ShardPlan shard_plan() const override;
  int64_t hidden_size() const override { return config_.hidden_size; }
  int64_t vocab_size() const override { return config_.vocab_size; }

  const DecoderConfig& config() const { return config_; }

 private:
  DecoderConfig config_;
  Rope rope_;
  std::shared_ptr<ops::AttentionPlans> attention_plans_;  ///< null until a pass runs on a GPU
  nn::Embedding embed_tokens_;
  std::vector<std::unique_ptr<nn::Block>> layers_;
  nn::RmsNorm norm_;
  /// Where tied it registers nothing but adapters' copies.
  std::unique_ptr<nn::VocabHead> lm_head_;
};

}  // namespace apus::models
