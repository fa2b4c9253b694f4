#include "apus/models/decoder_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apus/base/error.h"

namespace apus::models {
namespace {

using nlohmann::json;

json tiny(const DecoderConfig& config = {}) {
  return json::parse(decoder_config_json(config, at::kFloat));
}

json of_kind(const std::string& model_type) {
  return tiny(decoder_defaults(model_type));
}

json with(const std::string& model_type, const char* key, json value) {
  json config = of_kind(model_type);
  config[key] = std::move(value);
  return config;
}

json with(const char* key, json value) {
  return with("qwen2", key, std::move(value));
}

template <typename ErrorType>
std::string message_of(const json& config) {
  try {
    parse_decoder_config(config, "m/config.json");
  } catch (const ErrorType& error) {
    return error.what();
  }
  ADD_FAILURE() << "did not throw: " << config;
  return "";
}

void expect_mentions(const std::string& message, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(DecoderConfig, ComesBackFromItsOwnJsonInEveryKind) {
  for (const std::string& model_type : decoder_model_types()) {
    DecoderConfig config = decoder_defaults(model_type);
    EXPECT_EQ(parse_decoder_config(tiny(config)), config) << model_type;
    config.vocab_size = 99;
    config.hidden_size = 24;
    config.intermediate_size = 40;
    config.num_hidden_layers = 3;
    config.num_attention_heads = 6;
    config.num_key_value_heads = 3;
    config.head_dim = 6;
    config.max_position_embeddings = 77;
    config.rms_norm_eps = 1e-4;
    config.rope_theta = 5e5;
    config.tie_word_embeddings = true;
    config.rope_scaling = {.type = ops::RopeType::kDynamic, .factor = 3};
    EXPECT_EQ(parse_decoder_config(tiny(config)), config) << model_type;
  }
  EXPECT_EQ(tiny()["torch_dtype"], "float32");
  EXPECT_EQ(json::parse(decoder_config_json({}, at::kBFloat16))["torch_dtype"], "bfloat16");
  EXPECT_EQ(of_kind("llama")["architectures"][0], "LlamaForCausalLM");
}

TEST(DecoderConfig, BiasesAndWindowsComeBackToo) {
  DecoderConfig llama = decoder_defaults("llama");
  llama.qkv_bias = llama.o_bias = llama.mlp_bias = true;
  EXPECT_EQ(parse_decoder_config(tiny(llama)), llama);
  DecoderConfig internlm3 = decoder_defaults("internlm3");
  internlm3.qkv_bias = true;
  EXPECT_EQ(parse_decoder_config(tiny(internlm3)), internlm3);
  for (const char* kind : {"mistral", "qwen2", "qwen3"}) {
    DecoderConfig config = decoder_defaults(kind);
    config.sliding_window = 256;
    EXPECT_EQ(parse_decoder_config(tiny(config)), config) << kind;
  }
}

TEST(DecoderConfig, RefusesToWriteWhatAKindCannotSay) {
  DecoderConfig mistral = decoder_defaults("mistral");
  mistral.mlp_bias = true;
  EXPECT_THROW(decoder_config_json(mistral, at::kFloat), ConfigError);
  DecoderConfig llama = decoder_defaults("llama");
  llama.qk_norm = true;
  EXPECT_THROW(decoder_config_json(llama, at::kFloat), ConfigError);
  llama.qk_norm = false;
  llama.o_bias = true;  // attention_bias is one key for q, k, v and o
  EXPECT_THROW(decoder_config_json(llama, at::kFloat), ConfigError);
}

TEST(DecoderConfig, ReadsTheNestedSpellingOfTransformers5) {
  json config = with("rope_parameters", {{"rope_theta", 1e6}, {"rope_type", "default"}});
  config.erase("rope_theta");
  config.erase("rope_scaling");
  config["layer_types"] = {"full_attention", "full_attention"};
  EXPECT_EQ(parse_decoder_config(config).rope_theta, 1e6);
}

TEST(DecoderConfig, FillsInWhatTransformersFillsIn) {
  for (const std::string& model_type : decoder_model_types()) {
    json config = tiny([&] {
      DecoderConfig sizes = decoder_defaults(model_type);
      sizes.head_dim = 8;
      return sizes;
    }());
    for (const char* key : {"head_dim", "rms_norm_eps", "rope_theta", "tie_word_embeddings", "hidden_act",
                            "max_position_embeddings", "attention_bias", "mlp_bias", "qkv_bias", "bias"})
      config.erase(key);
    config["num_key_value_heads"] = nullptr;
    config["rope_scaling"] = nullptr;
    const DecoderConfig parsed = parse_decoder_config(config);
    const bool is_wide = model_type == "qwen3" || model_type == "internlm3";
    EXPECT_EQ(parsed.head_dim, is_wide ? 128 : 8) << model_type;
    EXPECT_EQ(parsed.num_key_value_heads, 4);
    EXPECT_EQ(parsed.rms_norm_eps, model_type == "internlm3" ? 1e-5 : 1e-6);
    EXPECT_EQ(parsed.rope_theta, 10000.0);
    EXPECT_GE(parsed.max_position_embeddings, 2048);
    EXPECT_FALSE(parsed.tie_word_embeddings);
    EXPECT_EQ(parsed.qkv_bias, model_type == "qwen2");
    EXPECT_FALSE(parsed.o_bias || parsed.mlp_bias);
  }
}

TEST(DecoderConfig, BiasKeysMeanWhatEachKindMeans) {
  const auto biases = [](const json& config) {
    const DecoderConfig c = parse_decoder_config(config);
    return std::vector<bool>{c.qkv_bias, c.o_bias, c.mlp_bias};
  };
  using B = std::vector<bool>;
  EXPECT_EQ(biases(with("llama", "attention_bias", true)), (B{true, true, false}));
  EXPECT_EQ(biases(with("llama", "mlp_bias", true)), (B{false, false, true}));
  EXPECT_EQ(biases(with("qwen3", "attention_bias", true)), (B{true, true, false}));
  EXPECT_EQ(biases(with("qwen2", "attention_bias", false)), (B{true, false, false}));
  EXPECT_EQ(biases(with("mistral", "attention_bias", true)), (B{false, false, false}));
  // InternLM3's own code: qkv_bias on q, k, v; bias on o and the feed-forward layer.
  EXPECT_EQ(biases(with("internlm3", "qkv_bias", true)), (B{true, false, false}));
  EXPECT_EQ(biases(with("internlm3", "bias", true)), (B{false, true, true}));
  json nested = of_kind("internlm3");
  nested.erase("qkv_bias");
  nested.erase("bias");
  nested["attention_bias"] = nested["mlp_bias"] = true;
  EXPECT_EQ(biases(nested), (B{true, true, true}));
  expect_mentions(message_of<ConfigError>(with("internlm3", "attention_bias", true)),
                  {"qkv_bias and attention_bias", "differ"});
}

TEST(DecoderConfig, WindowsCountWhereALayerHasOne) {
  const auto window = [](const json& config) { return parse_decoder_config(config).sliding_window; };
  EXPECT_EQ(window(with("mistral", "sliding_window", 32)), 32);
  EXPECT_EQ(window(with("mistral", "sliding_window", nullptr)), 0);
  json silent = of_kind("mistral");
  silent.erase("sliding_window");
  EXPECT_EQ(window(silent), 4096) << "transformers' default";
  json qwen = with("sliding_window", 32);
  EXPECT_EQ(window(qwen), 0);
  qwen["use_sliding_window"] = true;
  EXPECT_EQ(window(qwen), 0) << "max_window_layers is 28 by default, beyond the last layer";
  qwen["max_window_layers"] = 1;
  EXPECT_EQ(window(qwen), 32);
  qwen["layer_types"] = {"full_attention", "full_attention"};
  EXPECT_EQ(window(qwen), 0);
  qwen["layer_types"] = {"full_attention", "sliding_attention"};
  EXPECT_EQ(window(qwen), 32);
}

TEST(DecoderConfig, RefusesWhatItWouldComputeWrongly) {
  expect_mentions(message_of<NotSupported>(with("layer_types", {"full_attention", "linear_attention"})),
                  {"layer_types", "linear_attention"});
  for (const std::string& model_type : decoder_model_types())
    expect_mentions(message_of<NotSupported>(with(model_type, "hidden_act", "gelu")),
                    {"hidden_act", "gelu", model_type.c_str(), "silu"});
  expect_mentions(message_of<NotSupported>(with("attention_dropout", 0.1)), {"attention_dropout", "0.1"});
  expect_mentions(message_of<NotSupported>(with("llama", "rope_interleaved", true)), {"rope_interleaved"});
  expect_mentions(message_of<NotSupported>(with("model_type", "qwen4")),
                  {"qwen4", "did you mean", "internlm3, llama"});
  const json scaling = {{"type", "su"}, {"factor", 4.0}};
  expect_mentions(message_of<NotSupported>(with("rope_scaling", scaling)),
                  {"m/config.json", "rope_scaling.type", "'su'", "supported: default, linear"});
}

TEST(DecoderConfig, NamesAMissingKey) {
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "model_type"}) {
    json config = tiny();
    config.erase(key);
    expect_mentions(message_of<DataError>(config), {"m/config.json", key});
  }
}

TEST(DecoderConfig, RefusesSizesThatCannotBe) {
  expect_mentions(message_of<ConfigError>(with("hidden_size", 0)), {"hidden_size", "it is 0"});
  expect_mentions(message_of<ConfigError>(with("vocab_size", int64_t{1} << 40)), {"vocab_size"});
  expect_mentions(message_of<ConfigError>(with("max_position_embeddings", -1)), {"max_position_embeddings"});
  expect_mentions(message_of<ConfigError>(with("num_key_value_heads", 3)), {"4", "num_key_value_heads 3"});
  expect_mentions(message_of<ConfigError>(with("head_dim", 7)), {"head_dim 7", "odd"});
  expect_mentions(message_of<ConfigError>(with("rope_theta", -1.0)), {"rope_theta"});
  expect_mentions(message_of<ConfigError>(with("rms_norm_eps", -1.0)), {"rms_norm_eps"});
  json config = with("hidden_size", 30);
  config.erase("head_dim");
  expect_mentions(message_of<ConfigError>(config), {"hidden_size 30", "num_attention_heads 4"});
}

TEST(DecoderDefaults, AreTheKindsOwn) {
  EXPECT_TRUE(decoder_defaults("qwen2").qkv_bias);
  EXPECT_TRUE(decoder_defaults("qwen3").qk_norm);
  EXPECT_EQ(decoder_defaults("qwen2"), DecoderConfig{});
  EXPECT_THROW(decoder_defaults("gpt2"), NotSupported);
  EXPECT_EQ(decoder_model_types(),
            (std::vector<std::string>{"internlm3", "llama", "mistral", "qwen2", "qwen3"}));
}

}  // namespace
}  // namespace apus::models
