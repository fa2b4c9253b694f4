#include "apus/models/qwen2.h"

#include "apus/base/error.h"
#include "apus/ops/rotary.h"
#include "models/qwen2_block.h"

namespace apus::models {
namespace {

std::string layer_path(int64_t index) {
  return "model.layers." + std::to_string(index);
}

nn::VocabOptions vocab_options(const Qwen2Config& config, at::ScalarType dtype) {
  return {.vocab_size = config.vocab_size, .hidden_size = config.hidden_size, .dtype = dtype};
}

}  // namespace

Qwen2::Qwen2(const Qwen2Config& config, at::ScalarType dtype)
    : config_(config),
      embed_tokens_(vocab_options(config, dtype)),
      norm_({.size = config.hidden_size, .eps = config.rms_norm_eps, .dtype = dtype}) {
  register_module("model.embed_tokens", embed_tokens_);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layers_.push_back(std::make_unique<Qwen2Block>(config, dtype));
    register_module(layer_path(i), *layers_.back());
  }
  register_module("model.norm", norm_);
  lm_head_ = config.tie_word_embeddings ? std::make_unique<nn::VocabHead>(embed_tokens_)
                                        : std::make_unique<nn::VocabHead>(vocab_options(config, dtype));
  register_module("lm_head", *lm_head_);
}

void Qwen2::prepare(nn::PassContext& context) {
  APUS_CHECK(context.rows, ShapeError, "the pass has no row layout: set PassContext::rows");
  const at::Tensor& weight = embed_tokens_.weight();
  ops::RotaryTables tables = ops::rotary_tables(context.rows->positions_T.to(weight.device()),
                                                config_.head_dim, config_.rope_theta, weight.scalar_type());
  context.cos_TH = std::move(tables.cos_TH);
  context.sin_TH = std::move(tables.sin_TH);
}

at::Tensor Qwen2::embed(const at::Tensor& tokens_T, const nn::PassContext& context) {
  return embed_tokens_.forward(tokens_T, context);
}

std::vector<nn::Block*> Qwen2::blocks() {
  std::vector<nn::Block*> blocks;
  for (const auto& layer : layers_) blocks.push_back(layer.get());
  return blocks;
}

at::Tensor Qwen2::final_norm(const at::Tensor& hidden_MD, const nn::PassContext& context) {
  return norm_.forward(hidden_MD, context);
}

at::Tensor Qwen2::head_weight(const nn::PassContext& context) const {
  return lm_head_->weight(context);
}

std::vector<nn::NamedParameter> Qwen2::embed_parameters() {
  return embed_tokens_.named_parameters("model.embed_tokens");
}

std::vector<nn::NamedParameter> Qwen2::block_parameters(int64_t index) {
  APUS_CHECK(index >= 0 && index < config_.num_hidden_layers, ShapeError, "block ", index, " of ",
             config_.num_hidden_layers);
  return layers_[static_cast<size_t>(index)]->named_parameters(layer_path(index));
}

std::vector<nn::NamedParameter> Qwen2::head_parameters() {
  std::vector<nn::NamedParameter> parameters = norm_.named_parameters("model.norm");
  if (config_.tie_word_embeddings) parameters.push_back({"model.embed_tokens.weight", embed_tokens_.weight()});
  const auto head = lm_head_->named_parameters("lm_head");
  parameters.insert(parameters.end(), head.begin(), head.end());
  return parameters;
}

nn::ShardPlan Qwen2::shard_plan() const {
  using enum nn::ShardStyle;
  const std::string layer = "model.layers.*.";
  return {.rules = {{"model.embed_tokens", kVocab},
                    {layer + "self_attn.q_proj", kColumn},
                    {layer + "self_attn.k_proj", kColumn},
                    {layer + "self_attn.v_proj", kColumn},
                    {layer + "self_attn.o_proj", kRow},
                    {layer + "mlp.gate_proj", kColumn},
                    {layer + "mlp.up_proj", kColumn},
                    {layer + "mlp.down_proj", kRow},
                    {layer + "input_layernorm", kSequence},
                    {layer + "post_attention_layernorm", kSequence},
                    {"model.norm", kSequence},
                    {"lm_head", kVocab}}};
}

}  // namespace apus::models
