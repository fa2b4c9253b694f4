#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/models/decoder.h"
#include "apus/models/init_random.h"
#include "apus/models/pretrained.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tensor_checks.h"
#include "tests/unit/models/support/model_folder.h"

namespace apus::models {
namespace {

using namespace apus::testing;
using nlohmann::json;

const ModelRegistry& registry() {
  static const ModelRegistry kRegistry = [] {
    ModelRegistry filled;
    register_builtin_models(filled);
    return filled;
  }();
  return kRegistry;
}

json json_of(const DecoderConfig& config) {
  return json::parse(decoder_config_json(config, at::kFloat));
}

/// A random model of each kind, with the biases that the kind may have.
std::vector<DecoderConfig> one_of_each() {
  std::vector<DecoderConfig> configs;
  for (const std::string& kind : decoder_model_types()) {
    DecoderConfig config = decoder_defaults(kind);
    config.tie_word_embeddings = kind == "llama";
    if (kind == "internlm3") config.o_bias = config.mlp_bias = true;
    if (kind == "llama") config.qkv_bias = config.o_bias = config.mlp_bias = true;
    config.rope_scaling = {.type = ops::RopeType::kLinear, .factor = 2};
    configs.push_back(config);
  }
  return configs;
}

at::Tensor logits(nn::CausalLm& model) {
  nn::PassContext context;
  context.rows = nn::RowLayout::packed({6});
  return model.logits(at::arange(6, at::kLong), context);
}

TEST(DecoderSpec, EveryKindComesBackFromItsFolder) {
  for (const DecoderConfig& config : one_of_each()) {
    SCOPED_TRACE(config.model_type);
    const ScratchFolder folder;
    Decoder model(config, at::kFloat);
    init_random(model, {.seed = 4, .standard_deviation = 0.2});
    save_pretrained(folder.path(), decoder_config_json(config, at::kFloat), model.named_parameters(),
                    {.max_shard_bytes = config.tie_word_embeddings ? 9000 : 5'000'000'000});
    const PretrainedModel loaded = load_pretrained(folder.path(), registry());
    EXPECT_EQ(loaded.spec.model_type, config.model_type);
    EXPECT_EQ(dynamic_cast<Decoder&>(*loaded.model).config(), config);
    expect_equal(logits(*loaded.model), logits(model));
    EXPECT_EQ(loaded.max_length, config.max_position_embeddings);
  }
}

TEST(DecoderSpec, AnotherRotaryRuleIsInTheModelAndInWhatIsSaved) {
  const ScratchFolder folder;
  RandomModel saved;
  save_pretrained(folder.path(), saved.config_json, saved.parameters);
  const PretrainedModel longer =
      load_pretrained(folder.path(), registry(), {.rope_scaling = "linear", .max_model_len = 1000});
  EXPECT_EQ(longer.max_length, 1000);
  EXPECT_GT(largest(logits(*longer.model) - logits(*saved.model)), 1e-4);
  save_pretrained(folder / "again", longer.config_json, longer.model->named_parameters());
  const PretrainedModel again = load_pretrained(folder / "again", registry());
  expect_equal(logits(*again.model), logits(*longer.model));
  EXPECT_EQ(again.max_length, 1000);
  const std::string message = message_of<DataError>([&] {
    load_pretrained(folder.path(), registry(), {.rope_scaling = R"({"rope_type": "llama3", "factor": 2})"});
  });
  EXPECT_NE(message.find("--rope_scaling"), std::string::npos) << message;
}

TEST(DecoderSpec, TheBatchsLengthReachesTheModel) {
  const ScratchFolder folder;
  DecoderConfig config = decoder_defaults("internlm3");
  config.max_position_embeddings = 4;
  config.rope_scaling = {.type = ops::RopeType::kDynamic, .factor = 4};
  RandomModel saved(config);
  save_pretrained(folder.path(), saved.config_json, saved.parameters);
  const auto first_row = [&](const LoadOptions& options) {
    nn::PassContext context;
    context.rows = nn::RowLayout::padded({4}, 9);
    return load_pretrained(folder.path(), registry(), options)
        .model->logits(at::arange(9, at::kLong), context)[3];
  };
  EXPECT_GT(largest(first_row({}) - first_row({.rope_batch_length = true})), 1e-6);
}

TEST(DecoderSpec, AWindowMustHoldTheLongestSequence) {
  DecoderConfig config = decoder_defaults("mistral");
  config.sliding_window = 64;
  const ModelSpec spec = decoder_spec("mistral");
  const std::string message =
      message_of<NotSupported>([&] { spec.build(json_of(config), {.source = "c.json"}); });
  for (const char* part :
       {"c.json", "sliding_window 64", "256 tokens (max_position_embeddings)", "--max_model_len 64"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_TRUE(spec.build(json_of(config), {.max_length = 64}));
  EXPECT_THROW(spec.build(json_of(config), {.max_length = 65}), NotSupported);
  config.sliding_window = 256;
  EXPECT_TRUE(spec.build(json_of(config), {}));
  EXPECT_GT(spec.token_flops(json_of(config), 64).matmul, 0) << "costs are known whatever the window";
}

TEST(DecoderSpec, CountsFlopsByTheKindsOwnHeads) {
  DecoderConfig config = decoder_defaults("qwen3");
  config.head_dim = 20;  // 4 heads of 20 are wider than the 32 of the model
  const TokenFlops flops = decoder_spec("qwen3").token_flops(json_of(config), 9);
  const double layer = 32.0 * (4 + 2 + 2 + 4) * 20 + 3 * 32.0 * 48;
  EXPECT_DOUBLE_EQ(flops.matmul, 2 * (2 * layer + 32.0 * 128));
  EXPECT_DOUBLE_EQ(flops.attention, 2 * 2 * 2 * 4.0 * 20 * 5);
}

TEST(DecoderSpec, ACopyOfATiedHeadIsRedundantAndOldRotaryBuffersAre) {
  const auto patterns = decoder_spec("llama").weights.redundant(json_of({.tie_word_embeddings = true}));
  EXPECT_EQ(patterns.size(), 2u);
  EXPECT_EQ(decoder_spec("llama").weights.redundant(json_of({})).size(), 1u);
  EXPECT_THROW(decoder_spec("bert"), NotSupported);
}

}  // namespace
}  // namespace apus::models
