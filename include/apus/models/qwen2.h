#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/models/model_spec.h"
#include "apus/nn/causal_lm.h"
#include "apus/nn/embedding.h"
#include "apus/nn/rms_norm.h"

namespace apus::models {

/// What Qwen2's config.json says, checked. The defaults make a tiny model for tests.
struct APUS_API Qwen2Config {
  /// V, rows of the embedding and of the head.
  int64_t vocab_size = 128;
  /// D.
  int64_t hidden_size = 32;
  /// F, width of the feed-forward layer.
  int64_t intermediate_size = 48;
  int64_t num_hidden_layers = 2;
  /// N query heads, a multiple of the K key/value heads that they share.
  int64_t num_attention_heads = 4;
  int64_t num_key_value_heads = 2;
  /// H; given in config.json or hidden_size / num_attention_heads.
  int64_t head_dim = 8;
  /// Only read and written: the default rotary rule has no limit.
  int64_t max_position_embeddings = 256;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  /// Whether the head is the embedding's own tensor.
  bool tie_word_embeddings = false;

  friend bool operator==(const Qwen2Config&, const Qwen2Config&) = default;
};

/// Reads a config.json in the spelling of transformers 4 (rope_theta, rope_scaling) or 5 (rope_parameters).
/// Throws:  DataError if a key is missing or has a wrong type; ConfigError if sizes contradict each other;
///          NotSupported for another rope type, sliding windows, attention dropout or another activation.
APUS_API Qwen2Config parse_qwen2_config(const nlohmann::json& config,
                                        const std::string& source = "config.json");

/// The config.json of a model in the spelling of transformers 4, which both versions read.
APUS_API std::string qwen2_config_json(const Qwen2Config& config, at::ScalarType dtype);

/// The registry entry "qwen2" (Qwen2 and Qwen2.5, dense).
APUS_API ModelSpec qwen2_spec();

/// Qwen2 and Qwen2.5 on one device: embedding, pre-norm blocks of grouped-query attention (biases on q, k and
/// v) and SwiGLU, final norm, vocabulary projection.
///
/// Parameter names are Hugging Face's: "model.embed_tokens.weight", "model.layers.N.self_attn.q_proj.weight",
/// "model.layers.N.mlp.down_proj.weight", "model.norm.weight", "lm_head.weight" (untied models only).
/// Source:  Qwen team, "Qwen2 technical report", 2024; layout and rounding as Qwen2ForCausalLM's.
class APUS_API Qwen2 final : public nn::CausalLm {
 public:
  /// Parameters are unset and frozen; load_pretrained or init_random fills them.
  Qwen2(const Qwen2Config& config, at::ScalarType dtype);

  /// Makes the rotary tables of the default rule, in the embedding's dtype and on its device.
  void prepare(nn::PassContext& context) override;
  at::Tensor embed(const at::Tensor& tokens_T, const nn::PassContext& context) override;
  std::vector<nn::Block*> blocks() override;
  at::Tensor final_norm(const at::Tensor& hidden_MD, const nn::PassContext& context) override;
  at::Tensor head_weight(const nn::PassContext& context) const override;
  /// "model.embed_tokens.weight".
  std::vector<nn::NamedParameter> embed_parameters() override;
  /// Throws:  ShapeError if there is no such block.
  std::vector<nn::NamedParameter> block_parameters(int64_t index) override;
  /// "model.norm.weight", the head, or the embedding where tied, and adapters' copies of the head.
  std::vector<nn::NamedParameter> head_parameters() override;
  /// Column: q, k, v, gate, up. Row: o, down. Vocabulary: embedding, head. Sequence: norms.
  nn::ShardPlan shard_plan() const override;
  int64_t hidden_size() const override { return config_.hidden_size; }
  int64_t vocab_size() const override { return config_.vocab_size; }

  const Qwen2Config& config() const { return config_; }

 private:
  Qwen2Config config_;
  nn::Embedding embed_tokens_;
  std::vector<std::unique_ptr<nn::Block>> layers_;
  nn::RmsNorm norm_;
  /// Where tied it registers nothing but adapters' copies.
  std::unique_ptr<nn::VocabHead> lm_head_;
};

}  // namespace apus::models
