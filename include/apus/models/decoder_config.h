#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/models/model_spec.h"
#include "apus/ops/rope_scaling.h"

namespace apus::models {

/// What the config.json of a dense decoder says, checked. The defaults make a tiny Qwen2 for tests; see
/// decoder_defaults for the other kinds.
struct APUS_API DecoderConfig {
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
  /// H; given in config.json, or the kind's default (hidden_size / num_attention_heads for most).
  int64_t head_dim = 8;
  /// The longest sequence that the model was made for; some rotary rules start from it.
  int64_t max_position_embeddings = 256;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  /// Whether the head is the embedding's own tensor.
  bool tie_word_embeddings = false;
  /// As in config.json; one of decoder_model_types().
  std::string model_type = "qwen2";
  /// Which projections have biases: q, k and v; o; gate, up and down.
  bool qkv_bias = true;
  bool o_bias = false;
  bool mlp_bias = false;
  /// An RMSNorm over each head of q and k, before they turn.
  bool qk_norm = false;
  /// How positions turn beyond the length of the first training.
  ops::RopeScaling rope_scaling = {};
  /// Tokens that attention is meant to look back; 0 = all. Here it always sees the whole sequence, which is
  /// the same up to this length: longer sequences are refused.
  int64_t sliding_window = 0;

  friend bool operator==(const DecoderConfig&, const DecoderConfig&) = default;
};

/// The kinds of dense decoders, as config.json's model_type names them, sorted.
APUS_API std::vector<std::string> decoder_model_types();

/// A tiny model of a kind: the sizes of DecoderConfig, the biases and norms that the kind has by default.
/// Throws:  NotSupported for an unknown kind, listing the known.
APUS_API DecoderConfig decoder_defaults(const std::string& model_type);

/// Reads the config.json of any of decoder_model_types(), in the spelling of transformers 4 or 5.
/// Biases:  qwen2: q, k, v. qwen3 and llama: attention_bias on q, k, v and o; llama: mlp_bias. internlm3:
///          qkv_bias (or attention_bias) on q, k, v; bias (or mlp_bias) on o, gate, up, down. mistral: none.
/// Throws:  DataError if a key is missing or has a wrong type; ConfigError if sizes contradict each other;
///          NotSupported for an unknown model_type, attention dropout, another activation, layers of other
///          types, and as parse_rope.
APUS_API DecoderConfig parse_decoder_config(const nlohmann::json& config,
                                            const std::string& source = "config.json");

/// The config.json of a model in the spelling of transformers 4, which both versions read.
APUS_API std::string decoder_config_json(const DecoderConfig& config, c10::ScalarType dtype);

/// The registry entry of a kind.
/// Throws:  NotSupported for an unknown kind, listing the known.
APUS_API ModelSpec decoder_spec(const std::string& model_type);

}  // namespace apus::models
