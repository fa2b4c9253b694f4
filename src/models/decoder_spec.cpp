#include "apus/base/error.h"
#include "apus/models/decoder.h"
#include "models/decoder_kind.h"

#include <nlohmann/json.hpp>

namespace apus::models {
namespace {

/// Every matrix product of one token: weights without the embedding's lookup, with the projection.
double matmul_weights(const DecoderConfig& c) {
  const auto d = static_cast<double>(c.hidden_size);
  const auto heads =
      static_cast<double>((2 * c.num_attention_heads + 2 * c.num_key_value_heads) * c.head_dim);
  const double layer = d * heads + 3 * d * static_cast<double>(c.intermediate_size);
  return layer * static_cast<double>(c.num_hidden_layers) + d * static_cast<double>(c.vocab_size);
}

TokenFlops token_flops(const DecoderConfig& c, int64_t length) {
  const double visible = (static_cast<double>(length) + 1) / 2;
  const auto width = static_cast<double>(c.num_attention_heads * c.head_dim * c.num_hidden_layers);
  return {.matmul = 2 * matmul_weights(c), .attention = 4 * width * visible};
}

std::vector<std::string> redundant_tensors(const nlohmann::json& config) {
  std::vector<std::string> patterns = {"model.layers.*.self_attn.rotary_emb.inv_freq"};
  if (parse_decoder_config(config).tie_word_embeddings) patterns.push_back("lm_head.weight");
  return patterns;
}

/// A window that some sequence may exceed is refused before anything is loaded.
void check_window(const DecoderConfig& config, const BuildOptions& options) {
  if (config.sliding_window == 0) return;
  const int64_t longest = options.max_length.value_or(config.max_position_embeddings);
  APUS_CHECK(longest <= config.sliding_window, NotSupported, options.source, ": sliding_window ",
             config.sliding_window, " is below the longest sequence, ", longest, " tokens (",
             options.max_length ? "--max_model_len" : "max_position_embeddings",
             "), and attention here sees the whole sequence; give --max_model_len ", config.sliding_window,
             " for texts up to that length: the numbers are then the same");
}

std::unique_ptr<nn::CausalLm> build(const nlohmann::json& json, const BuildOptions& options) {
  const DecoderConfig config = parse_decoder_config(json, options.source);
  check_window(config, options);
  return std::make_unique<Decoder>(config, options.dtype, options.rope_length);
}

}  // namespace

ModelSpec decoder_spec(const std::string& model_type) {
  const DecoderKind& kind = decoder_kind(model_type);
  return {.model_type = model_type,
          .architecture = std::string(kind.architecture),
          .build = build,
          .token_flops = [](const nlohmann::json& config,
                            int64_t length) { return token_flops(parse_decoder_config(config), length); },
          .weights = {.redundant = redundant_tensors}};
}

}  // namespace apus::models
