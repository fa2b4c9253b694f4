#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/models/qwen2.h"

namespace apus::models {
namespace {

using nlohmann::json;

json tiny(const Qwen2Config& config = {}) {
  return json::parse(qwen2_config_json(config, at::kFloat));
}

json with(const char* key, json value) {
  json config = tiny();
  config[key] = std::move(value);
  return config;
}

template <typename ErrorType>
std::string message_of(const json& config) {
  try {
    parse_qwen2_config(config, "m/config.json");
  } catch (const ErrorType& error) {
    return error.what();
  }
  ADD_FAILURE() << "did not throw: " << config;
  return "";
}

void expect_mentions(const std::string& message, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(Qwen2Config, ComesBackFromItsOwnJson) {
  const Qwen2Config config = {.vocab_size = 99,
                              .hidden_size = 24,
                              .intermediate_size = 40,
                              .num_hidden_layers = 3,
                              .num_attention_heads = 6,
                              .num_key_value_heads = 3,
                              .head_dim = 6,
                              .max_position_embeddings = 77,
                              .rms_norm_eps = 1e-5,
                              .rope_theta = 5e5,
                              .tie_word_embeddings = true};
  EXPECT_EQ(parse_qwen2_config(tiny(config)), config);
  EXPECT_EQ(tiny(config)["torch_dtype"], "float32");
  EXPECT_EQ(json::parse(qwen2_config_json(config, at::kBFloat16))["torch_dtype"], "bfloat16");
}

TEST(Qwen2Config, ReadsTheNestedSpellingOfTransformers5) {
  json config = with("rope_parameters", {{"rope_theta", 1e6}, {"rope_type", "default"}});
  config.erase("rope_theta");
  config["layer_types"] = {"full_attention", "full_attention"};
  EXPECT_EQ(parse_qwen2_config(config).rope_theta, 1e6);
}

TEST(Qwen2Config, FillsInWhatTransformersFillsIn) {
  json config = tiny({.hidden_size = 32, .num_attention_heads = 4, .head_dim = 8});
  for (const char* key : {"head_dim", "rms_norm_eps", "rope_theta", "tie_word_embeddings", "hidden_act"})
    config.erase(key);
  config["num_key_value_heads"] = nullptr;
  config["rope_scaling"] = nullptr;
  const Qwen2Config parsed = parse_qwen2_config(config);
  EXPECT_EQ(parsed.head_dim, 8);
  EXPECT_EQ(parsed.num_key_value_heads, 4);
  EXPECT_EQ(parsed.rms_norm_eps, 1e-6);
  EXPECT_EQ(parsed.rope_theta, 10000.0);
  EXPECT_FALSE(parsed.tie_word_embeddings);
}

TEST(Qwen2Config, NamesAnUnsupportedRopeTypeInEitherSpelling) {
  const json scaling = {{"type", "yarn"}, {"factor", 4.0}};
  expect_mentions(message_of<NotSupported>(with("rope_scaling", scaling)),
                  {"m/config.json", "rope_scaling.type", "yarn", "supported: default"});
  const json parameters = {{"rope_type", "llama3"}, {"rope_theta", 1e4}};
  expect_mentions(message_of<NotSupported>(with("rope_parameters", parameters)),
                  {"rope_parameters.rope_type", "llama3", "supported: default"});
}

TEST(Qwen2Config, RefusesWhatItWouldComputeWrongly) {
  expect_mentions(message_of<NotSupported>(with("use_sliding_window", true)),
                  {"use_sliding_window", "set it to"});
  expect_mentions(message_of<NotSupported>(with("layer_types", {"full_attention", "sliding_attention"})),
                  {"layer_types", "sliding_attention"});
  expect_mentions(message_of<NotSupported>(with("hidden_act", "gelu")), {"hidden_act", "gelu", "silu"});
  expect_mentions(message_of<NotSupported>(with("attention_dropout", 0.1)), {"attention_dropout", "0.1"});
}

TEST(Qwen2Config, NamesAMissingKey) {
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"}) {
    json config = tiny();
    config.erase(key);
    expect_mentions(message_of<DataError>(config), {"m/config.json", key});
  }
}

TEST(Qwen2Config, RefusesSizesThatCannotBe) {
  expect_mentions(message_of<ConfigError>(with("hidden_size", 0)), {"hidden_size", "it is 0"});
  expect_mentions(message_of<ConfigError>(with("vocab_size", int64_t{1} << 40)), {"vocab_size"});
  expect_mentions(message_of<ConfigError>(with("num_key_value_heads", 3)), {"4", "num_key_value_heads 3"});
  expect_mentions(message_of<ConfigError>(with("head_dim", 7)), {"head_dim 7", "odd"});
  expect_mentions(message_of<ConfigError>(with("rope_theta", -1.0)), {"rope_theta"});
  json config = with("hidden_size", 30);
  config.erase("head_dim");
  expect_mentions(message_of<ConfigError>(config), {"hidden_size 30", "num_attention_heads 4"});
}

// Qwen2.5-0.5B: 357,826,560 weights in its matrix products outside the head (by its published shapes), head
// 896 x 151,936.
TEST(Qwen2Config, CountsTheFlopsOfAKnownModel) {
  const json config = tiny({.vocab_size = 151936,
                            .hidden_size = 896,
                            .intermediate_size = 4864,
                            .num_hidden_layers = 24,
                            .num_attention_heads = 14,
                            .num_key_value_heads = 2,
                            .head_dim = 64,
                            .tie_word_embeddings = true});
  const TokenFlops flops = qwen2_spec().token_flops(config, 1023);
  const double layer = 896.0 * 896 * 2 + 896.0 * 128 * 2 + 3 * 896.0 * 4864;
  EXPECT_DOUBLE_EQ(flops.matmul, 2 * (24 * layer + 896.0 * 151936));
  EXPECT_DOUBLE_EQ(flops.attention, 24 * 2 * 2 * 896.0 * 512);
}

}  // namespace
}  // namespace apus::models
