#include "models/decoder_kind.h"

#include "apus/base/error.h"
#include "apus/base/join_words.h"
#include "apus/base/nearest_name.h"
#include "apus/models/decoder_config.h"

namespace apus::models {

std::span<const DecoderKind> decoder_kinds() {
  static const std::vector<DecoderKind> kKinds = {
      {.model_type = "internlm3",
       .architecture = "InternLM3ForCausalLM",
       .max_position_embeddings = 32768,
       .head_dim = 128,
       .rms_norm_eps = 1e-5,
       .qkv_bias_keys = {"qkv_bias", "attention_bias"},
       .o_bias_keys = {"bias", "mlp_bias"},
       .mlp_bias_keys = {"bias", "mlp_bias"}},
      {.model_type = "llama",
       .architecture = "LlamaForCausalLM",
       .max_position_embeddings = 2048,
       .qkv_bias_keys = {"attention_bias"},
       .o_bias_keys = {"attention_bias"},
       .mlp_bias_keys = {"mlp_bias"}},
      {.model_type = "mistral",
       .architecture = "MistralForCausalLM",
       .max_position_embeddings = 131072,
       .window = WindowRule::kAlways},
      {.model_type = "qwen2",
       .architecture = "Qwen2ForCausalLM",
       .max_position_embeddings = 32768,
       .qkv_bias = true,
       .window = WindowRule::kFlagged},
      {.model_type = "qwen3",
       .architecture = "Qwen3ForCausalLM",
       .max_position_embeddings = 32768,
       .head_dim = 128,
       .qkv_bias_keys = {"attention_bias"},
       .o_bias_keys = {"attention_bias"},
       .qk_norm = true,
       .window = WindowRule::kFlagged},
  };
  return kKinds;
}

const DecoderKind& decoder_kind(const std::string& model_type) {
  for (const DecoderKind& kind : decoder_kinds())
    if (kind.model_type == model_type) return kind;
  const std::vector<std::string> known = decoder_model_types();
  throw NotSupported("model_type '" + model_type + "' is no dense decoder" + did_you_mean(model_type, known) +
                     "; supported: " + join_words(known));
}

std::vector<std::string> decoder_model_types() {
  std::vector<std::string> names;
  for (const DecoderKind& kind : decoder_kinds()) names.emplace_back(kind.model_type);
  return names;
}

DecoderConfig decoder_defaults(const std::string& model_type) {
  const DecoderKind& kind = decoder_kind(model_type);
  DecoderConfig config;
  config.rms_norm_eps = kind.rms_norm_eps;
  config.model_type = model_type;
  config.qkv_bias = kind.qkv_bias;
  config.qk_norm = kind.qk_norm;
  return config;
}

}  // namespace apus::models
