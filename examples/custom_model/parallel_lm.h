#pragma once

#include <apus/models/model_spec.h>
#include <apus/nn/causal_lm.h>
#include <apus/nn/embedding.h>
#include <apus/nn/rms_norm.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

/// A model of one's own. Qwen-like with two differences: attention and feed-forward read the same norm and
/// are added side by side (one residual a block, as in GPT-J and PaLM), and the feed-forward layer is a plain
/// squared ReLU.
namespace example {

/// What its config.json says; the defaults are the example's tiny model.
struct ParallelConfig {
  int64_t vocab_size = 64;
  int64_t hidden_size = 32;
  int64_t num_attention_heads = 4;
  int64_t intermediate_size = 96;
  int64_t num_hidden_layers = 2;
  double rope_theta = 10000.0;

  int64_t head_dim() const { return hidden_size / num_attention_heads; }
};

/// Reads a config.json. Keys that are missing throw apus::DataError with the file's name.
ParallelConfig parse_parallel_config(const nlohmann::json& json, const std::string& source);

/// Writes one.
std::string parallel_config_json(const ParallelConfig& config);

/// The whole model; the vocabulary projection is the embedding's own tensor.
class ParallelLm final : public apus::nn::CausalLm {
 public:
  ParallelLm(const ParallelConfig& config, at::ScalarType dtype);

  void prepare(apus::nn::PassContext& context) override;
  at::Tensor embed(const at::Tensor& tokens_T, const apus::nn::PassContext& context) override;
  std::vector<apus::nn::Block*> blocks() override;
  at::Tensor final_norm(const at::Tensor& hidden_MD, const apus::nn::PassContext& context) override;
  at::Tensor head_weight(const apus::nn::PassContext& context) const override;
  std::vector<apus::nn::NamedParameter> embed_parameters() override;
  std::vector<apus::nn::NamedParameter> block_parameters(int64_t index) override;
  std::vector<apus::nn::NamedParameter> head_parameters() override;
  apus::nn::ShardPlan shard_plan() const override;
  int64_t hidden_size() const override { return config_.hidden_size; }
  int64_t vocab_size() const override { return config_.vocab_size; }

 private:
  ParallelConfig config_;
  apus::nn::Embedding embed_;
  std::vector<std::unique_ptr<apus::nn::Block>> layers_;
  apus::nn::RmsNorm norm_;
  apus::nn::VocabHead lm_head_;
};

/// The registry entry: how a folder whose config.json says "parallel_lm" is built, and what it costs.
apus::models::ModelSpec parallel_lm_spec();

}  // namespace example
