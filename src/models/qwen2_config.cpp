#include <c10/core/ScalarType.h>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/models/qwen2.h"
#include "apus/models/tensor_dtype.h"

namespace apus::models {
namespace {

// Beyond every model there is; a config is untrusted, and products of sizes must not overflow.
constexpr int64_t kLargestSize = int64_t{1} << 24;

int64_t positive(const JsonView& view, const std::string& key, int64_t value) {
  APUS_CHECK(value > 0 && value <= kLargestSize, ConfigError, view.source(), ": ", view.path_of(key),
             " must be from 1 to ", kLargestSize, ", it is ", value);
  return value;
}

int64_t require_positive(const JsonView& view, const std::string& key) {
  return positive(view, key, view.require<int64_t>(key));
}

void check_rope_type(const JsonView& rope) {
  for (const char* key : {"rope_type", "type"}) {
    const std::string type = rope.get_or<std::string>(key, "default");
    APUS_CHECK(type == "default", NotSupported, rope.source(), ": ", rope.path_of(key), " '", type,
               "' is not supported for model_type qwen2; supported: default");
  }
}

/// transformers 5 nests theta in rope_parameters; 4 has it at the top, with rope_scaling beside it.
double rope_theta(const JsonView& view) {
  double theta = view.get_or<double>("rope_theta", 10000.0);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const auto rope = view.find_object(key);
    if (!rope) continue;
    check_rope_type(*rope);
    theta = rope->get_or<double>("rope_theta", theta);
  }
  APUS_CHECK(theta > 0, ConfigError, view.source(), ": rope_theta must be positive, it is ", theta);
  return theta;
}

void refuse_sliding_window(const JsonView& view) {
  APUS_CHECK(
      !view.get_or<bool>("use_sliding_window", false), NotSupported, view.source(),
      ": use_sliding_window true is not supported: attention here sees the whole sequence; for texts no "
      "longer than sliding_window set it to false, the numbers are then the same");
  for (const std::string& type : view.get_or<std::vector<std::string>>("layer_types", {}))
    APUS_CHECK(type == "full_attention", NotSupported, view.source(), ": layer_types has '", type,
               "'; supported: full_attention");
}

void refuse_other_features(const JsonView& view) {
  refuse_sliding_window(view);
  const std::string activation = view.get_or<std::string>("hidden_act", "silu");
  APUS_CHECK(activation == "silu", NotSupported, view.source(), ": hidden_act '", activation,
             "' is not supported for model_type qwen2; supported: silu");
  const double dropout = view.get_or<double>("attention_dropout", 0.0);
  APUS_CHECK(dropout == 0.0, NotSupported, view.source(), ": attention_dropout ", dropout,
             " is not supported; supported: 0");
}

int64_t head_dim(const JsonView& view, const Qwen2Config& config) {
  if (const auto given = view.find<int64_t>("head_dim")) return positive(view, "head_dim", *given);
  APUS_CHECK(config.hidden_size % config.num_attention_heads == 0, ConfigError, view.source(),
             ": hidden_size ", config.hidden_size, " is not a multiple of num_attention_heads ",
             config.num_attention_heads, " and head_dim is not given");
  return config.hidden_size / config.num_attention_heads;
}

void check_heads(const Qwen2Config& config, const std::string& source) {
  APUS_CHECK(config.num_attention_heads % config.num_key_value_heads == 0, ConfigError, source,
             ": num_attention_heads ", config.num_attention_heads,
             " is not a multiple of num_key_value_heads ", config.num_key_value_heads);
  APUS_CHECK(config.head_dim % 2 == 0, ConfigError, source, ": head_dim ", config.head_dim,
             " is odd; rotary positions need pairs");
}

/// Every matrix product of one token: weights without the embedding's lookup, with the projection.
double matmul_weights(const Qwen2Config& c) {
  const auto d = static_cast<double>(c.hidden_size);
  const auto heads =
      static_cast<double>((2 * c.num_attention_heads + 2 * c.num_key_value_heads) * c.head_dim);
  const double layer = d * heads + 3 * d * static_cast<double>(c.intermediate_size);
  return layer * static_cast<double>(c.num_hidden_layers) + d * static_cast<double>(c.vocab_size);
}

TokenFlops token_flops(const Qwen2Config& c, int64_t length) {
  const double visible = (static_cast<double>(length) + 1) / 2;
  const auto width = static_cast<double>(c.num_attention_heads * c.head_dim * c.num_hidden_layers);
  return {.matmul = 2 * matmul_weights(c), .attention = 4 * width * visible};
}

std::vector<std::string> redundant_tensors(const nlohmann::json& config) {
  std::vector<std::string> patterns = {"model.layers.*.self_attn.rotary_emb.inv_freq"};
  if (parse_qwen2_config(config).tie_word_embeddings) patterns.push_back("lm_head.weight");
  return patterns;
}

}  // namespace

Qwen2Config parse_qwen2_config(const nlohmann::json& json, const std::string& source) {
  const JsonView view(json, source);
  refuse_other_features(view);
  Qwen2Config config;
  config.vocab_size = require_positive(view, "vocab_size");
  config.hidden_size = require_positive(view, "hidden_size");
  config.intermediate_size = require_positive(view, "intermediate_size");
  config.num_hidden_layers = require_positive(view, "num_hidden_layers");
  config.num_attention_heads = require_positive(view, "num_attention_heads");
  config.num_key_value_heads = positive(
      view, "num_key_value_heads", view.get_or<int64_t>("num_key_value_heads", config.num_attention_heads));
  config.head_dim = head_dim(view, config);
  config.max_position_embeddings = view.get_or<int64_t>("max_position_embeddings", 32768);
  config.rms_norm_eps = view.get_or<double>("rms_norm_eps", 1e-6);
  config.rope_theta = rope_theta(view);
  config.tie_word_embeddings = view.get_or<bool>("tie_word_embeddings", false);
  check_heads(config, source);
  return config;
}

std::string qwen2_config_json(const Qwen2Config& c, at::ScalarType dtype) {
  const std::string type_name = dtype == at::kFloat      ? "float32"
                                : dtype == at::kBFloat16 ? "bfloat16"
                                : dtype == at::kHalf     ? "float16"
                                                         : c10::toString(dtype);
  nlohmann::ordered_json json = {{"architectures", {"Qwen2ForCausalLM"}},
                                 {"attention_dropout", 0.0},
                                 {"head_dim", c.head_dim},
                                 {"hidden_act", "silu"},
                                 {"hidden_size", c.hidden_size},
                                 {"initializer_range", 0.02},
                                 {"intermediate_size", c.intermediate_size},
                                 {"max_position_embeddings", c.max_position_embeddings},
                                 {"model_type", "qwen2"},
                                 {"num_attention_heads", c.num_attention_heads},
                                 {"num_hidden_layers", c.num_hidden_layers},
                                 {"num_key_value_heads", c.num_key_value_heads},
                                 {"rms_norm_eps", c.rms_norm_eps},
                                 {"rope_theta", c.rope_theta},
                                 {"sliding_window", nullptr},
                                 {"tie_word_embeddings", c.tie_word_embeddings},
                                 {"torch_dtype", type_name},
                                 {"use_cache", true},
                                 {"use_sliding_window", false},
                                 {"vocab_size", c.vocab_size}};
  return dump_json(json, {.indent = 2}) + "\n";
}

ModelSpec qwen2_spec() {
  return {.model_type = "qwen2",
          .architecture = "Qwen2ForCausalLM",
          .build = [](const nlohmann::json& config,
                      const BuildOptions& options) -> std::unique_ptr<nn::CausalLm> {
            return std::make_unique<Qwen2>(parse_qwen2_config(config, options.source), options.dtype);
          },
          .token_flops = [](const nlohmann::json& config,
                            int64_t length) { return token_flops(parse_qwen2_config(config), length); },
          .weights = {.redundant = redundant_tensors}};
}

}  // namespace apus::models
