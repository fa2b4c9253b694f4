#include "apus/models/decoder.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include <map>
#include <set>

#include "apus/base/error.h"
#include "apus/models/init_random.h"
#include "apus/nn/linear.h"
#include "apus/ops/token_log_probs.h"
#include "tests/support/tensor_checks.h"

namespace apus::models {
namespace {

using namespace apus::testing;

std::unique_ptr<Decoder> made(const DecoderConfig& config, at::ScalarType dtype = at::kFloat) {
  auto model = std::make_unique<Decoder>(config, dtype);
  init_random(*model, {.seed = 3, .standard_deviation = 0.2});
  return model;
}

std::unique_ptr<Decoder> tiny(bool tied = false, at::ScalarType dtype = at::kFloat) {
  return made({.tie_word_embeddings = tied}, dtype);
}

std::unique_ptr<Decoder> of_kind(const std::string& model_type) {
  return made(decoder_defaults(model_type));
}

std::set<std::string> names_of(nn::Module& model) {
  std::set<std::string> names;
  for (const auto& parameter : model.named_parameters()) names.insert(parameter.name);
  return names;
}

nn::PassContext pass(std::shared_ptr<const nn::RowLayout> rows, std::vector<std::string> adapters = {}) {
  return {.rows = std::move(rows), .adapters = std::move(adapters)};
}

at::Tensor tokens_for(int64_t rows) {
  at::Tensor tokens = at::empty({rows}, at::kLong);
  for (int64_t i = 0; i < rows; ++i) tokens[i] = (i * i * 7 + 3) % 128;
  return tokens;
}

TEST(Decoder, NamesItsParametersAsHuggingFaceDoes) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& [name, tensor] : tiny()->named_parameters()) shapes[name] = tensor.sizes().vec();
  EXPECT_EQ(shapes.size(), 3u + 2 * 12);
  const std::map<std::string, std::vector<int64_t>> wanted = {
      {"model.embed_tokens.weight", {128, 32}},
      {"model.norm.weight", {32}},
      {"lm_head.weight", {128, 32}},
      {"model.layers.1.self_attn.q_proj.weight", {32, 32}},
      {"model.layers.1.self_attn.q_proj.bias", {32}},
      {"model.layers.1.self_attn.k_proj.weight", {16, 32}},
      {"model.layers.1.self_attn.k_proj.bias", {16}},
      {"model.layers.1.self_attn.v_proj.weight", {16, 32}},
      {"model.layers.1.self_attn.v_proj.bias", {16}},
      {"model.layers.1.self_attn.o_proj.weight", {32, 32}},
      {"model.layers.1.mlp.gate_proj.weight", {48, 32}},
      {"model.layers.1.mlp.up_proj.weight", {48, 32}},
      {"model.layers.1.mlp.down_proj.weight", {32, 48}},
      {"model.layers.1.input_layernorm.weight", {32}},
      {"model.layers.1.post_attention_layernorm.weight", {32}}};
  for (const auto& [name, shape] : wanted) EXPECT_EQ(shapes[name], shape) << name;
}

TEST(Decoder, EachKindHasItsOwnBiasesAndNorms) {
  const std::string attention = "model.layers.1.self_attn.", mlp = "model.layers.1.mlp.";
  const auto has = [](const std::unique_ptr<Decoder>& model, const std::string& name) {
    return names_of(*model).contains(name);
  };
  EXPECT_TRUE(has(of_kind("qwen2"), attention + "v_proj.bias"));
  EXPECT_FALSE(has(of_kind("qwen2"), attention + "q_norm.weight"));
  EXPECT_TRUE(has(of_kind("qwen3"), attention + "k_norm.weight"));
  for (const char* kind : {"llama", "mistral", "internlm3"}) {
    const auto model = of_kind(kind);
    EXPECT_EQ(model->named_parameters().size(), 3u + 2 * 9) << kind;
  }
  DecoderConfig config = decoder_defaults("internlm3");
  config.o_bias = config.mlp_bias = true;
  const auto mixed = made(config);
  for (const char* name : {"o_proj.bias"}) EXPECT_TRUE(has(mixed, attention + name));
  for (const char* name : {"gate_proj.bias", "up_proj.bias", "down_proj.bias"})
    EXPECT_TRUE(has(mixed, mlp + name));
  EXPECT_FALSE(has(mixed, attention + "q_proj.bias"));
}

TEST(Decoder, ASequenceBeyondTheWindowIsRefused) {
  DecoderConfig config = decoder_defaults("mistral");
  config.sliding_window = 4;
  const auto model = made(config);
  EXPECT_EQ(model->logits(tokens_for(7), pass(nn::RowLayout::packed({4, 3}))).size(0), 7);
  EXPECT_THROW(model->logits(tokens_for(7), pass(nn::RowLayout::packed({2, 5}))), NotSupported);
  nn::PassContext context = pass(nn::RowLayout::prefixed({3, 2}, {-1, 0}));
  EXPECT_THROW(model->prepare(context), NotSupported);
}

TEST(Decoder, RotaryRulesReachTheLogits) {
  DecoderConfig config = decoder_defaults("llama");
  const auto rows = nn::RowLayout::packed({9});
  const at::Tensor plain = made(config)->logits(tokens_for(9), pass(rows));
  config.rope_scaling = {.type = ops::RopeType::kLinear, .factor = 8};
  EXPECT_GT(largest(made(config)->logits(tokens_for(9), pass(rows)) - plain), 1e-3);
}

TEST(Decoder, LongSequencesDoNotDependOnTheirNeighboursUnlessToldTo) {
  DecoderConfig config = decoder_defaults("internlm3");
  config.max_position_embeddings = 4;
  config.rope_scaling = {.type = ops::RopeType::kDynamic, .factor = 4};
  const at::Tensor tokens = tokens_for(5);
  const auto model = made(config);
  const at::Tensor alone = model->logits(tokens, pass(nn::RowLayout::packed({5})));
  const at::Tensor more = at::cat({tokens, tokens_for(9)});
  const auto both = nn::RowLayout::packed({5, 9});
  expect_close(model->logits(more, pass(both)).narrow(0, 0, 5), alone, {.absolute = 1e-5});
  Decoder by_batch(config, at::kFloat, RopeLength::kBatch);
  init_random(by_batch, {.seed = 3, .standard_deviation = 0.2});
  EXPECT_GT(largest(by_batch.logits(more, pass(both)).narrow(0, 0, 5) - alone), 1e-3);
}

TEST(Decoder, ATiedHeadIsTheEmbeddingRegisteredOnce) {
  const auto model = tiny(true);
  EXPECT_TRUE(model->head_weight({}).is_same(model->embed_parameters()[0].tensor));
  for (const auto& parameter : model->named_parameters()) EXPECT_NE(parameter.name, "lm_head.weight");
  EXPECT_EQ(model->head_parameters().back().name, "model.embed_tokens.weight");
}

TEST(Decoder, ItsPartsListEveryParameter) {
  for (const std::string& kind : decoder_model_types()) {
    DecoderConfig config = decoder_defaults(kind);
    config.tie_word_embeddings = kind == "qwen3" || kind == "llama";
    const auto model = made(config);
    std::set<std::string> parts;
    const auto take = [&](const std::vector<nn::NamedParameter>& list) {
      for (const auto& parameter : list) parts.insert(parameter.name);
    };
    take(model->embed_parameters());
    for (int64_t i = 0; i < 2; ++i) take(model->block_parameters(i));
    take(model->head_parameters());
    EXPECT_EQ(parts, names_of(*model)) << kind;
  }
  EXPECT_THROW(tiny()->block_parameters(2), ShapeError);
}

TEST(Decoder, PackedAndPaddedRowsGiveTheSameLogits) {
  const auto model = tiny();
  const at::Tensor tokens = tokens_for(9);
  const at::Tensor packed = model->logits(tokens, pass(nn::RowLayout::packed({4, 5})));
  at::Tensor padded_tokens = at::empty({12}, at::kLong).fill_(1);
  padded_tokens.narrow(0, 0, 4).copy_(tokens.narrow(0, 0, 4));
  padded_tokens.narrow(0, 6, 5).copy_(tokens.narrow(0, 4, 5));
  const at::Tensor padded = model->logits(padded_tokens, pass(nn::RowLayout::padded({4, 5}, 6)));
  expect_close(padded.narrow(0, 0, 4), packed.narrow(0, 0, 4), {.absolute = 1e-5});
  expect_close(padded.narrow(0, 6, 5), packed.narrow(0, 4, 5), {.absolute = 1e-5});
}

TEST(Decoder, ATokenSeesNoLaterTokenAndNoOtherSequence) {
  const auto model = tiny();
  const at::Tensor tokens = tokens_for(9);
  at::Tensor changed = tokens.clone();
  changed[3] = 77;
  const auto rows = nn::RowLayout::packed({5, 4});
  const at::Tensor before = model->logits(tokens, pass(rows)), after = model->logits(changed, pass(rows));
  expect_close(after.narrow(0, 0, 3), before.narrow(0, 0, 3), {.absolute = 1e-6});
  expect_close(after.narrow(0, 5, 4), before.narrow(0, 5, 4), {.absolute = 1e-6});
  EXPECT_GT(largest(after[4] - before[4]), 1e-3);
}

TEST(Decoder, TiedGradientsHoldBothUses) {
  const auto model = tiny(true);
  nn::make_trainable(*model);
  const at::Tensor tokens = tokens_for(4), targets = tokens_for(5).narrow(0, 1, 4);
  nn::PassContext context = pass(nn::RowLayout::packed({4}));
  model->prepare(context);
  const auto hidden_of = [&](const at::Tensor& embedded) {
    at::Tensor hidden = embedded;
    for (nn::Block* block : model->blocks()) hidden = block->forward(hidden, context);
    return model->final_norm(hidden, context);
  };
  const at::Tensor weight = model->head_weight({});
  const auto gradient_of = [&](const at::Tensor& logp) {
    logp.sum().backward();
    at::Tensor gradient = weight.grad().clone();
    weight.mutable_grad().reset();
    return gradient;
  };
  const at::Tensor both =
      gradient_of(ops::token_log_probs(hidden_of(model->embed(tokens, context)), weight, targets));
  const at::Tensor as_head =
      gradient_of(ops::token_log_probs(hidden_of(model->embed(tokens, context).detach()), weight, targets));
  const at::Tensor as_table =
      gradient_of(ops::token_log_probs(hidden_of(model->embed(tokens, context)), weight.detach(), targets));
  EXPECT_GT(largest(as_table), 1e-3);
  expect_close(both, as_head + as_table, {.absolute = 1e-5});
}

TEST(Decoder, Bf16StaysCloseToFp32) {
  const auto wide = tiny(), narrow = tiny(false, at::kBFloat16);
  const auto rows = nn::RowLayout::packed({9});
  const at::Tensor a = wide->logits(tokens_for(9), pass(rows)), b = narrow->logits(tokens_for(9), pass(rows));
  EXPECT_EQ(b.scalar_type(), at::kBFloat16);
  EXPECT_LE(rms_difference(a, b), 0.02 * largest(a));
}

TEST(Decoder, ReadsParametersThatWereMovedIntoOtherStorage) {
  const auto model = tiny();
  const auto rows = nn::RowLayout::packed({5});
  const at::Tensor before = model->logits(tokens_for(5), pass(rows));
  for (const auto& [name, tensor] : model->named_parameters()) tensor.set_data(tensor.clone());
  expect_equal(model->logits(tokens_for(5), pass(rows)), before);
  for (const auto& [name, tensor] : model->named_parameters()) tensor.set_data(tensor * 1.5);
  EXPECT_GT(largest(model->logits(tokens_for(5), pass(rows)) - before), 1e-2);
}

TEST(Decoder, AllSevenProjectionsTakeAdapters) {
  const auto model = tiny();
  int64_t linears = 0;
  uint64_t seed = 60;
  for (const auto& [path, module] : model->named_modules()) {
    auto* linear = dynamic_cast<nn::Linear*>(module);
    if (!linear) continue;
    ++linears;
    nn::LoraAdapter& adapter = linear->add_adapter("default", {.rank = 2, .alpha = 2}, at::kFloat);
    adapter.a_RI.set_data(random_tensor(adapter.a_RI.sizes(), seed++));
    adapter.b_OR.set_data(random_tensor(adapter.b_OR.sizes(), seed++));
  }
  EXPECT_EQ(linears, 2 * 7);
  const auto rows = nn::RowLayout::packed({5});
  const at::Tensor with = model->logits(tokens_for(5), pass(rows, {"default"}));
  EXPECT_GT(largest(with - model->logits(tokens_for(5), pass(rows))), 1e-2);
  with.sum().backward();
  for (const auto& [name, tensor] : model->named_parameters())
    EXPECT_EQ(tensor.grad().defined(), name.find("lora_") != std::string::npos) << name;
}

TEST(Decoder, ShardPlanNamesEveryModuleWithParameters) {
  const auto model = tiny();
  const nn::ShardPlan plan = model->shard_plan();
  EXPECT_EQ(plan.style_of("model.layers.1.self_attn.o_proj"), nn::ShardStyle::kRow);
  EXPECT_EQ(plan.style_of("model.layers.0.mlp.gate_proj"), nn::ShardStyle::kColumn);
  EXPECT_EQ(plan.style_of("lm_head"), nn::ShardStyle::kVocab);
  for (const auto& parameter : model->named_parameters()) {
    const std::string module = parameter.name.substr(0, parameter.name.rfind('.'));
    EXPECT_NE(plan.style_of(module), nn::ShardStyle::kReplicate) << module;
  }
  EXPECT_EQ(plan.style_of("model.layers.0.self_attn.q_norm"), nn::ShardStyle::kReplicate);
}

TEST(Decoder, EmptyPassRuns) {
  const auto model = tiny();
  const at::Tensor y = model->logits(at::empty({0}, at::kLong), pass(nn::RowLayout::packed({})));
  EXPECT_EQ(y.sizes(), at::IntArrayRef({0, 128}));
}

}  // namespace
}  // namespace apus::models
