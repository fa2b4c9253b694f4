#include "apus/models/decoder.h"

#include "apus/base/error.h"
#include "apus/ops/device_rows.h"
#include "models/decoder_block.h"

namespace apus::models {
namespace {

std::string layer_path(int64_t index) {
  return "model.layers." + std::to_string(index);
}

nn::VocabOptions vocab_options(const DecoderConfig& config, at::ScalarType dtype) {
  return {.vocab_size = config.vocab_size, .hidden_size = config.hidden_size, .dtype = dtype};
}

ops::RopeShape rope_shape(const DecoderConfig& config) {
  return {.head_dim = config.head_dim,
          .theta = config.rope_theta,
          .max_position_embeddings = config.max_position_embeddings};
}

/// Each sequence's length counts the prompt that it continues.
void check_window(const nn::RowLayout& rows, int64_t window) {
  if (window == 0) return;
  for (size_t s = 0; s < rows.lengths.size(); ++s) {
    const int64_t prefix = rows.prefixes.empty() ? -1 : rows.prefixes[s];
    const int64_t length = rows.lengths[s] + (prefix < 0 ? 0 : rows.lengths[static_cast<size_t>(prefix)]);
    APUS_CHECK(length <= window, NotSupported, "a sequence has ", length,
               " tokens, but the model looks back ", window,
               " (sliding_window) and attention here sees the whole sequence: give --max_length ", window);
  }
}

}  // namespace

Decoder::Decoder(const DecoderConfig& config, at::ScalarType dtype, RopeLength rope_length)
    : config_(config),
      rope_(rope_shape(config), config.rope_scaling, rope_length),
      embed_tokens_(vocab_options(config, dtype)),
      norm_({.size = config.hidden_size, .eps = config.rms_norm_eps, .dtype = dtype}) {
  register_module("model.embed_tokens", embed_tokens_);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layers_.push_back(std::make_unique<DecoderBlock>(config, dtype));
    register_module(layer_path(i), *layers_.back());
  }
  register_module("model.norm", norm_);
  lm_head_ = config.tie_word_embeddings ? std::make_unique<nn::VocabHead>(embed_tokens_)
                                        : std::make_unique<nn::VocabHead>(vocab_options(config, dtype));
  register_module("lm_head", *lm_head_);
}

void Decoder::prepare(nn::PassContext& context) {
  APUS_CHECK(context.rows, ShapeError, "the pass has no row layout: set PassContext::rows");
  check_window(*context.rows, config_.sliding_window);
  const at::Tensor& weight = embed_tokens_.weight();
  ops::RotaryTables tables = rope_.tables(*context.rows, weight.device(), weight.scalar_type());
  context.cos_TH = std::move(tables.cos_TH);
  context.sin_TH = std::move(tables.sin_TH);
  if (!weight.is_cuda()) return;
  if (!attention_plans_) attention_plans_ = ops::make_attention_plans();
  context.device_rows = std::make_shared<const ops::DeviceRows>(
      context.rows->lengths, context.rows->padded_length, weight.device(), attention_plans_);
}

at::Tensor Decoder::embed(const at::Tensor& tokens_T, const nn::PassContext& context) {
  return embed_tokens_.forward(tokens_T, context);
}

std::vector<nn::Block*> Decoder::blocks() {
  std::vector<nn::Block*> blocks;
  for (const auto& layer : layers_) blocks.push_back(layer.get());
  return blocks;
}

at::Tensor Decoder::final_norm(const at::Tensor& hidden_MD, const nn::PassContext& context) {
  return norm_.forward(hidden_MD, context);
}

at::Tensor Decoder::head_weight(const nn::PassContext& context) const {
  return lm_head_->weight(context);
}

std::vector<nn::NamedParameter> Decoder::embed_parameters() {
  return embed_tokens_.named_parameters("model.embed_tokens");
}

std::vector<nn::NamedParameter> Decoder::block_parameters(int64_t index) {
  APUS_CHECK(index >= 0 && index < config_.num_hidden_layers, ShapeError, "block ", index, " of ",
             config_.num_hidden_layers);
  return layers_[static_cast<size_t>(index)]->named_parameters(layer_path(index));
}

std::vector<nn::NamedParameter> Decoder::head_parameters() {
  std::vector<nn::NamedParameter> parameters = norm_.named_parameters("model.norm");
  if (config_.tie_word_embeddings)
    parameters.push_back({"model.embed_tokens.weight", embed_tokens_.weight()});
  const auto head = lm_head_->named_parameters("lm_head");
  parameters.insert(parameters.end(), head.begin(), head.end());
  return parameters;
}

nn::ShardPlan Decoder::shard_plan() const {
  using enum nn::ShardStyle;
  const std::string layer = "model.layers.*.";
  return {.rules = {{"model.embed_tokens", kVocab},
                    {layer + "self_attn.q_proj", kColumn},
                    {layer + "self_attn.k_proj", kColumn},
                    {layer + "self_attn.v_proj", kColumn},
                    {layer + "self_attn.o_proj", kRow},
                    {layer + "self_attn.q_norm", kReplicate},
                    {layer + "self_attn.k_norm", kReplicate},
                    {layer + "mlp.gate_proj", kColumn},
                    {layer + "mlp.up_proj", kColumn},
                    {layer + "mlp.down_proj", kRow},
                    {layer + "input_layernorm", kSequence},
                    {layer + "post_attention_layernorm", kSequence},
                    {"model.norm", kSequence},
                    {"lm_head", kVocab}}};
}

}  // namespace apus::models
