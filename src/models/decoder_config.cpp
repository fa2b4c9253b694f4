#include "apus/models/decoder_config.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <optional>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/models/rope_config.h"
#include "models/decoder_kind.h"

namespace apus::models {
namespace {

// Beyond every model there is; a config is untrusted, and products of sizes must not overflow.
constexpr int64_t kLargestSize = int64_t{1} << 24;
constexpr int64_t kDefaultWindow = 4096;

int64_t positive(const JsonView& view, const std::string& key, int64_t value) {
  APUS_CHECK(value > 0 && value <= kLargestSize, ConfigError, view.source(), ": ", view.path_of(key),
             " must be from 1 to ", kLargestSize, ", it is ", value);
  return value;
}

int64_t require_positive(const JsonView& view, const std::string& key) {
  return positive(view, key, view.require<int64_t>(key));
}

int64_t positive_or(const JsonView& view, const std::string& key, int64_t fallback) {
  return positive(view, key, view.get_or<int64_t>(key, fallback));
}

void refuse_other_features(const JsonView& view, const DecoderKind& kind) {
  const std::string activation = view.get_or<std::string>("hidden_act", "silu");
  APUS_CHECK(activation == "silu", NotSupported, view.source(), ": hidden_act '", activation,
             "' is not supported for model_type ", kind.model_type, "; supported: silu");
  const double dropout = view.get_or<double>("attention_dropout", 0.0);
  APUS_CHECK(dropout == 0.0, NotSupported, view.source(), ": attention_dropout ", dropout,
             " is not supported; supported: 0");
  APUS_CHECK(!view.get_or<bool>("rope_interleaved", false), NotSupported, view.source(),
             ": rope_interleaved true is not supported: element i turns with element i + head_dim / 2");
}

void refuse_other_layers(const JsonView& view) {
  for (const std::string& type : view.get_or<std::vector<std::string>>("layer_types", {}))
    APUS_CHECK(type == "full_attention" || type == "sliding_attention", NotSupported, view.source(),
               ": layer_types has '", type, "'; supported: full_attention, sliding_attention");
}

/// Whether any layer looks back over a window only.
bool uses_window(const JsonView& view, const DecoderKind& kind, int64_t layers) {
  if (kind.window == WindowRule::kAlways) return true;
  if (view.has("layer_types")) {
    const auto types = view.require<std::vector<std::string>>("layer_types");
    return std::find(types.begin(), types.end(), "sliding_attention") != types.end();
  }
  return kind.window == WindowRule::kFlagged && view.get_or<bool>("use_sliding_window", false) &&
         view.get_or<int64_t>("max_window_layers", 28) < layers;
}

/// A window of null is none; one that is not there at all is the default of transformers.
int64_t sliding_window(const JsonView& view, const DecoderKind& kind, int64_t layers) {
  const bool is_null = view.value().contains("sliding_window") && !view.has("sliding_window");
  if (is_null || !uses_window(view, kind, layers)) return 0;
  return positive_or(view, "sliding_window", kDefaultWindow);
}

/// The word of the keys that are there: two spellings of one thing must agree.
bool bias(const JsonView& view, const std::vector<std::string>& keys) {
  std::optional<bool> found;
  for (const std::string& key : keys) {
    const auto said = view.find<bool>(key);
    APUS_CHECK(!said || !found || *said == *found, ConfigError, view.source(), ": ", keys.front(), " and ",
               key, " are two spellings of one thing, and they differ; keep one");
    if (said) found = said;
  }
  return found.value_or(false);
}

int64_t head_dim(const JsonView& view, const DecoderKind& kind, const DecoderConfig& config) {
  if (const auto given = view.find<int64_t>("head_dim")) return positive(view, "head_dim", *given);
  if (kind.head_dim > 0) return kind.head_dim;
  APUS_CHECK(config.hidden_size % config.num_attention_heads == 0, ConfigError, view.source(),
             ": hidden_size ", config.hidden_size, " is not a multiple of num_attention_heads ",
             config.num_attention_heads, " and head_dim is not given");
  return config.hidden_size / config.num_attention_heads;
}

void check_heads(const DecoderConfig& config, const std::string& source) {
  APUS_CHECK(config.num_attention_heads % config.num_key_value_heads == 0, ConfigError, source,
             ": num_attention_heads ", config.num_attention_heads,
             " is not a multiple of num_key_value_heads ", config.num_key_value_heads);
  APUS_CHECK(config.head_dim % 2 == 0, ConfigError, source, ": head_dim ", config.head_dim,
             " is odd; rotary positions need pairs");
}

void read_sizes(const JsonView& view, const DecoderKind& kind, DecoderConfig& config) {
  config.vocab_size = require_positive(view, "vocab_size");
  config.hidden_size = require_positive(view, "hidden_size");
  config.intermediate_size = require_positive(view, "intermediate_size");
  config.num_hidden_layers = require_positive(view, "num_hidden_layers");
  config.num_attention_heads = require_positive(view, "num_attention_heads");
  config.num_key_value_heads = positive_or(view, "num_key_value_heads", config.num_attention_heads);
  config.head_dim = head_dim(view, kind, config);
  config.max_position_embeddings = positive_or(view, "max_position_embeddings", kind.max_position_embeddings);
}

const char* dtype_text(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Float:
      return "float32";
    case c10::ScalarType::BFloat16:
      return "bfloat16";
    case c10::ScalarType::Half:
      return "float16";
    default:
      return c10::toString(dtype);
  }
}

/// The kind's keys must be able to say what the config says.
void check_sayable(const DecoderConfig& config, const DecoderKind& kind) {
  const bool one_key = kind.qkv_bias_keys == kind.o_bias_keys;
  const bool o_follows_mlp = !kind.o_bias_keys.empty() && kind.o_bias_keys == kind.mlp_bias_keys;
  const bool fits =
      config.qk_norm == kind.qk_norm && (!kind.qkv_bias_keys.empty() || config.qkv_bias == kind.qkv_bias) &&
      (!kind.o_bias_keys.empty() || !config.o_bias) && (!kind.mlp_bias_keys.empty() || !config.mlp_bias) &&
      (!one_key || kind.o_bias_keys.empty() || config.o_bias == config.qkv_bias) &&
      (!o_follows_mlp || config.o_bias == config.mlp_bias);
  APUS_CHECK(fits, ConfigError, "a config.json of model_type ", kind.model_type,
             " cannot say: biases on q, k, v ", config.qkv_bias, ", on o ", config.o_bias,
             ", on gate, up, down ", config.mlp_bias, ", norms on heads ", config.qk_norm,
             "; see parse_decoder_config for what each kind has");
}

/// The keys that say where biases are: the first spelling of each, which transformers 4 reads.
void put_biases(const DecoderConfig& config, const DecoderKind& kind, nlohmann::ordered_json& json) {
  if (!kind.qkv_bias_keys.empty()) json[kind.qkv_bias_keys.front()] = config.qkv_bias;
  if (!kind.mlp_bias_keys.empty()) json[kind.mlp_bias_keys.front()] = config.mlp_bias;
}

void put_window(const DecoderConfig& config, const DecoderKind& kind, nlohmann::ordered_json& json) {
  if (kind.window == WindowRule::kNever) return;
  json["sliding_window"] =
      config.sliding_window > 0 ? nlohmann::ordered_json(config.sliding_window) : nullptr;
  if (kind.window != WindowRule::kFlagged) return;
  json["use_sliding_window"] = config.sliding_window > 0;
  if (config.sliding_window > 0) json["max_window_layers"] = 0;
}

}  // namespace

DecoderConfig parse_decoder_config(const nlohmann::json& json, const std::string& source) {
  const JsonView view(json, source);
  const DecoderKind& kind = decoder_kind(view.require<std::string>("model_type"));
  refuse_other_features(view, kind);
  refuse_other_layers(view);
  DecoderConfig config{.model_type = std::string(kind.model_type), .qk_norm = kind.qk_norm};
  read_sizes(view, kind, config);
  config.rms_norm_eps = view.get_or<double>("rms_norm_eps", kind.rms_norm_eps);
  APUS_CHECK(config.rms_norm_eps >= 0, ConfigError, source, ": rms_norm_eps must not be negative, it is ",
             config.rms_norm_eps);
  config.tie_word_embeddings = view.get_or<bool>("tie_word_embeddings", false);
  config.qkv_bias = kind.qkv_bias || bias(view, kind.qkv_bias_keys);
  config.o_bias = bias(view, kind.o_bias_keys);
  config.mlp_bias = bias(view, kind.mlp_bias_keys);
  config.sliding_window = sliding_window(view, kind, config.num_hidden_layers);
  check_heads(config, source);
  RopeConfig rope = parse_rope(json, {.head_dim = config.head_dim,
                                      .max_position_embeddings = config.max_position_embeddings,
                                      .source = source});
  config.rope_theta = rope.theta;
  config.rope_scaling = std::move(rope.scaling);
  return config;
}

std::string decoder_config_json(const DecoderConfig& c, c10::ScalarType dtype) {
  const DecoderKind& kind = decoder_kind(c.model_type);
  check_sayable(c, kind);
  nlohmann::ordered_json json = {{"architectures", {kind.architecture}},
                                 {"attention_dropout", 0.0},
                                 {"head_dim", c.head_dim},
                                 {"hidden_act", "silu"},
                                 {"hidden_size", c.hidden_size},
                                 {"initializer_range", 0.02},
                                 {"intermediate_size", c.intermediate_size},
                                 {"max_position_embeddings", c.max_position_embeddings},
                                 {"model_type", c.model_type},
                                 {"num_attention_heads", c.num_attention_heads},
                                 {"num_hidden_layers", c.num_hidden_layers},
                                 {"num_key_value_heads", c.num_key_value_heads},
                                 {"rms_norm_eps", c.rms_norm_eps},
                                 {"rope_scaling", rope_json(c.rope_scaling)},
                                 {"rope_theta", c.rope_theta},
                                 {"tie_word_embeddings", c.tie_word_embeddings},
                                 {"torch_dtype", dtype_text(dtype)},
                                 {"use_cache", true},
                                 {"vocab_size", c.vocab_size}};
  put_biases(c, kind, json);
  put_window(c, kind, json);
  return dump_json(json, {.indent = 2}) + "\n";
}

}  // namespace apus::models
