#include "parallel_lm.h"

#include <apus/base/error.h>
#include <apus/base/json.h>
#include <apus/nn/linear.h>
#include <apus/ops/attention.h>
#include <apus/ops/rotary.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/relu.h>

namespace example {
namespace {

using apus::nn::NamedParameter;
using apus::nn::PassContext;

std::string layer_path(int64_t index) {
  return "layers." + std::to_string(index);
}

/// Step 1 of the guide. x + attention(norm(x)) + feed_forward(norm(x)).
class ParallelBlock final : public apus::nn::Block {
 public:
  ParallelBlock(const ParallelConfig& c, at::ScalarType dtype)
      : heads_(c.num_attention_heads),
        norm_({.size = c.hidden_size, .dtype = dtype}),
        qkv_proj_({.in_features = c.hidden_size, .out_features = 3 * c.hidden_size, .dtype = dtype}),
        o_proj_({.in_features = c.hidden_size, .out_features = c.hidden_size, .dtype = dtype}),
        up_proj_({.in_features = c.hidden_size, .out_features = c.intermediate_size, .dtype = dtype}),
        down_proj_({.in_features = c.intermediate_size, .out_features = c.hidden_size, .dtype = dtype}) {
    register_module("norm", norm_);
    register_module("qkv_proj", qkv_proj_);
    register_module("o_proj", o_proj_);
    register_module("up_proj", up_proj_);
    register_module("down_proj", down_proj_);
  }

  at::Tensor forward(const at::Tensor& hidden_TD, const PassContext& context) override {
    const at::Tensor normed_TD = norm_.forward(hidden_TD, context);
    const at::Tensor act_TF = at::relu(up_proj_.forward(normed_TD, context)).square();
    return hidden_TD + attend(normed_TD, context) + down_proj_.forward(act_TF, context);
  }

 private:
  at::Tensor attend(const at::Tensor& x_TD, const PassContext& context) {
    const auto parts = qkv_proj_.forward(x_TD, context).unflatten(-1, {3, heads_, -1}).unbind(1);
    const auto turned = apus::ops::rotary(parts[0], parts[1], context.cos_TH, context.sin_TH);
    const at::Tensor y_TNH =
        apus::ops::attention(turned.q_TNH, turned.k_TKH, parts[2], apus::nn::attention_rows(*context.rows));
    return o_proj_.forward(y_TNH.flatten(1), context);
  }

  int64_t heads_;
  apus::nn::RmsNorm norm_;
  apus::nn::Linear qkv_proj_, o_proj_, up_proj_, down_proj_;
};

}  // namespace

// Step 2: the model.

ParallelLm::ParallelLm(const ParallelConfig& config, at::ScalarType dtype)
    : config_(config),
      embed_({.vocab_size = config.vocab_size, .hidden_size = config.hidden_size, .dtype = dtype}),
      norm_({.size = config.hidden_size, .dtype = dtype}),
      lm_head_(embed_) {
  register_module("embed", embed_);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    layers_.push_back(std::make_unique<ParallelBlock>(config, dtype));
    register_module(layer_path(layer), *layers_.back());
  }
  register_module("norm", norm_);
  register_module("lm_head", lm_head_);
}

void ParallelLm::prepare(PassContext& context) {
  const at::Tensor& weight = embed_.weight();
  auto tables = apus::ops::rotary_tables(context.rows->positions_T.to(weight.device()), config_.head_dim(),
                                         config_.rope_theta, weight.scalar_type());
  context.cos_TH = tables.cos_TH;
  context.sin_TH = tables.sin_TH;
}

at::Tensor ParallelLm::embed(const at::Tensor& tokens_T, const PassContext& context) {
  return embed_.forward(tokens_T, context);
}

std::vector<apus::nn::Block*> ParallelLm::blocks() {
  std::vector<apus::nn::Block*> blocks;
  for (const auto& layer : layers_) blocks.push_back(layer.get());
  return blocks;
}

at::Tensor ParallelLm::final_norm(const at::Tensor& hidden_MD, const PassContext& context) {
  return norm_.forward(hidden_MD, context);
}

at::Tensor ParallelLm::head_weight(const PassContext& context) const {
  return lm_head_.weight(context);
}

std::vector<NamedParameter> ParallelLm::embed_parameters() {
  return embed_.named_parameters("embed");
}

std::vector<NamedParameter> ParallelLm::block_parameters(int64_t index) {
  return layers_.at(static_cast<size_t>(index))->named_parameters(layer_path(index));
}

std::vector<NamedParameter> ParallelLm::head_parameters() {
  auto parameters = norm_.named_parameters("norm");
  parameters.push_back({"embed.weight", embed_.weight()});   // tied: listed by both of its users
  const auto copies = lm_head_.named_parameters("lm_head");  // an adapter may train a head of its own
  parameters.insert(parameters.end(), copies.begin(), copies.end());
  return parameters;
}

// Step 3: how tensor parallelism would cut it, as data. qkv_proj stays whole: a column cut would have to keep
// the heads of q, k and v together.
apus::nn::ShardPlan ParallelLm::shard_plan() const {
  using enum apus::nn::ShardStyle;
  return {.rules = {{"embed", kVocab},
                    {"lm_head", kVocab},
                    {"layers.*.up_proj", kColumn},
                    {"layers.*.down_proj", kRow},
                    {"layers.*.norm", kSequence},
                    {"norm", kSequence}}};
}

// Step 4: config.json and the registry entry.

ParallelConfig parse_parallel_config(const nlohmann::json& json, const std::string& source) {
  const apus::JsonView view(json, source);
  ParallelConfig config{.vocab_size = view.require<int64_t>("vocab_size"),
                        .hidden_size = view.require<int64_t>("hidden_size"),
                        .num_attention_heads = view.require<int64_t>("num_attention_heads"),
                        .intermediate_size = view.require<int64_t>("intermediate_size"),
                        .num_hidden_layers = view.require<int64_t>("num_hidden_layers"),
                        .rope_theta = view.get_or<double>("rope_theta", 10000.0)};
  APUS_CHECK(config.num_attention_heads > 0 && config.hidden_size % (2 * config.num_attention_heads) == 0,
             ConfigError, source, ": hidden_size ", config.hidden_size,
             " must be an even multiple of num_attention_heads ", config.num_attention_heads);
  return config;
}

std::string parallel_config_json(const ParallelConfig& config) {
  const nlohmann::ordered_json json = {{"model_type", "parallel_lm"},
                                       {"vocab_size", config.vocab_size},
                                       {"hidden_size", config.hidden_size},
                                       {"num_attention_heads", config.num_attention_heads},
                                       {"intermediate_size", config.intermediate_size},
                                       {"num_hidden_layers", config.num_hidden_layers},
                                       {"rope_theta", config.rope_theta},
                                       {"torch_dtype", "float32"}};
  return apus::dump_json(json, {.indent = 2}) + "\n";
}

apus::models::ModelSpec parallel_lm_spec() {
  return {
      .model_type = "parallel_lm",
      .architecture = "ParallelLm",
      .build = [](const nlohmann::json& json,
                  const apus::models::BuildOptions& options) -> std::unique_ptr<apus::nn::CausalLm> {
        return std::make_unique<ParallelLm>(parse_parallel_config(json, options.source), options.dtype);
      },
      .token_flops =
          [](const nlohmann::json& json, int64_t length) {
            const ParallelConfig c = parse_parallel_config(json, "config.json");
            const auto d = static_cast<double>(c.hidden_size), f = static_cast<double>(c.intermediate_size);
            const auto layers = static_cast<double>(c.num_hidden_layers);
            const double weights = layers * (4 * d * d + 2 * d * f) + d * static_cast<double>(c.vocab_size);
            const double visible = (static_cast<double>(length) + 1) / 2;
            return apus::models::TokenFlops{.matmul = 2 * weights, .attention = 4 * layers * d * visible};
          }};
}

}  // namespace example
