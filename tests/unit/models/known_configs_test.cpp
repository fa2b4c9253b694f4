// config.json of models that people train, with every key that these files carry (tests/data/configs).
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/models/decoder_config.h"
#include "apus/models/rope_config.h"

namespace apus::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json config_of(const std::string& name) {
  return load_json_file(fs::path(APUS_SOURCE_DIR) / "tests/data/configs" / (name + ".json"));
}

DecoderConfig parsed(const std::string& name) {
  return parse_decoder_config(config_of(name), name);
}

/// Parameters of a whole model as its card counts them, from the products' weights: what the products lack is
/// the embedding (unless tied), norms and biases.
double parameters(const std::string& name) {
  const DecoderConfig c = parsed(name);
  const double products = decoder_spec(c.model_type).token_flops(config_of(name), 1).matmul / 2;
  const double d = static_cast<double>(c.hidden_size), layers = static_cast<double>(c.num_hidden_layers);
  const double embedding = c.tie_word_embeddings ? 0 : d * static_cast<double>(c.vocab_size);
  const double head_norms = c.qk_norm ? 2 * static_cast<double>(c.head_dim) : 0;
  const auto heads = static_cast<double>((c.num_attention_heads + 2 * c.num_key_value_heads) * c.head_dim);
  const double biases = c.qkv_bias ? heads : 0;
  return products + embedding + d + layers * (2 * d + head_norms + biases);
}

TEST(KnownConfigs, EveryFileParsesAndTellsItsDtype) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(APUS_SOURCE_DIR) / "tests/data/configs")) {
    if (entry.path().extension() != ".json") continue;
    SCOPED_TRACE(entry.path().stem().string());
    const json config = load_json_file(entry.path());
    EXPECT_NO_THROW(parse_decoder_config(config));
    EXPECT_EQ(config_dtype(config, "c"), at::kBFloat16);
    EXPECT_EQ(config["architectures"][0], decoder_spec(config["model_type"]).architecture);
    ++files;
  }
  EXPECT_EQ(files, 8);
}

TEST(KnownConfigs, GiveTheParametersThatTheModelsAreKnownToHave) {
  EXPECT_EQ(parameters("smollm2_135m"), 134'515'008);
  EXPECT_EQ(parameters("qwen2.5_0.5b_instruct"), 494'032'768);
  EXPECT_EQ(parameters("qwen2.5_14b_instruct"), 14'770'033'664);
  EXPECT_EQ(parameters("qwen3_0.6b"), 596'049'920);
  EXPECT_EQ(parameters("llama3.2_1b_instruct"), 1'235'814'400);
  EXPECT_EQ(parameters("mistral_7b_v0.3"), 7'248'023'552);
  EXPECT_EQ(parameters("mistral_7b_v0.1"), 7'241'732'096);
}

TEST(KnownConfigs, NoneNeedsAWindowButTheOldMistral) {
  for (const char* name : {"smollm2_135m", "qwen2.5_0.5b_instruct", "qwen2.5_14b_instruct", "qwen3_0.6b",
                           "llama3.2_1b_instruct", "mistral_7b_v0.3", "internlm3_8b_instruct"})
    EXPECT_EQ(parsed(name).sliding_window, 0) << name;
  EXPECT_EQ(parsed("mistral_7b_v0.1").sliding_window, 4096);
}

TEST(KnownConfigs, HaveTheRulesThatTheirModelsUse) {
  EXPECT_EQ(parsed("smollm2_135m").rope_theta, 100000.0);
  EXPECT_EQ(parsed("smollm2_135m").head_dim, 64);
  EXPECT_EQ(parsed("qwen3_0.6b").head_dim, 128);
  const ops::RopeScaling llama = parsed("llama3.2_1b_instruct").rope_scaling;
  EXPECT_EQ(llama.type, ops::RopeType::kLlama3);
  EXPECT_EQ(llama.factor, 32.0);
  EXPECT_EQ(llama.original_max_position_embeddings, 8192);
  const DecoderConfig intern = parsed("internlm3_8b_instruct");
  EXPECT_EQ(intern.rope_scaling.type, ops::RopeType::kDynamic);
  EXPECT_EQ(intern.rope_scaling.factor, 6.0);
  EXPECT_EQ(intern.rope_theta, 5e7);
  EXPECT_FALSE(intern.qkv_bias || intern.o_bias || intern.mlp_bias);
}

// The way of the Qwen2.5 model cards to 131,072 tokens.
TEST(KnownConfigs, QwensLongContextIsAFlagAway) {
  const std::string text = config_of("qwen2.5_14b_instruct").dump();
  const OverriddenConfig by_name = override_rope(text, {.rope_scaling = "yarn", .max_model_len = 131072});
  const OverriddenConfig by_json = override_rope(
      text,
      {.rope_scaling = R"({"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"})"});
  for (const OverriddenConfig& longer : {by_name, by_json}) {
    const DecoderConfig config = parse_decoder_config(json::parse(longer.config_json));
    EXPECT_EQ(config.rope_scaling.factor, 4.0);
    EXPECT_EQ(config.rope_scaling.original_max_position_embeddings, 32768);
    EXPECT_EQ(longer.max_length, 131072);
  }
}

}  // namespace
}  // namespace apus::models
