#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "apus/base/philox.h"
#include "apus/nn/causal_lm.h"
#include "apus/nn/embedding.h"
#include "apus/nn/linear.h"

namespace apus::peft::testing {

/// Projections under the paths of a Qwen-like layer; its pass is the q projection alone.
class TinyBlock final : public nn::Block {
 public:
  TinyBlock() {
    register_module("self_attn.q_proj", q_proj);
    register_module("self_attn.v_proj", v_proj);
    register_module("mlp.down_proj", down_proj);
  }
  at::Tensor forward(const at::Tensor& hidden_TD, const nn::PassContext& context) override {
    return q_proj.forward(hidden_TD, context);
  }

  nn::Linear q_proj{{.in_features = 6, .out_features = 6, .bias = true}};
  nn::Linear v_proj{{.in_features = 6, .out_features = 4}};
  nn::Linear down_proj{{.in_features = 10, .out_features = 6}};
};

/// Two layers, an embedding and an untied head, filled with random numbers: all that adapters look at.
class TinyModel final : public nn::CausalLm {
 public:
  TinyModel() {
    register_module("model.embed_tokens", embed_tokens);
    for (int i = 0; i < 2; ++i) register_module("model.layers." + std::to_string(i), layers[i]);
    register_module("lm_head", lm_head);
    for (nn::NamedParameter& parameter : named_parameters()) {
      const PhiloxSequence random(uint64_t{1}, parameter.name);
      auto* values = parameter.tensor.mutable_data_ptr<float>();
      for (int64_t i = 0; i < parameter.tensor.numel(); ++i)
        values[i] = static_cast<float>(random.normal(static_cast<uint64_t>(i)));
    }
  }

  void prepare(nn::PassContext&) override {}
  at::Tensor embed(const at::Tensor& tokens_T, const nn::PassContext& context) override {
    return embed_tokens.forward(tokens_T, context);
  }
  std::vector<nn::Block*> blocks() override { return {&layers[0], &layers[1]}; }
  at::Tensor final_norm(const at::Tensor& hidden_MD, const nn::PassContext&) override { return hidden_MD; }
  at::Tensor head_weight(const nn::PassContext& context) const override { return lm_head.weight(context); }
  std::vector<nn::NamedParameter> embed_parameters() override { return {}; }
  std::vector<nn::NamedParameter> block_parameters(int64_t) override { return {}; }
  std::vector<nn::NamedParameter> head_parameters() override { return {}; }
  nn::ShardPlan shard_plan() const override { return {}; }
  int64_t hidden_size() const override { return 6; }
  int64_t vocab_size() const override { return 5; }

  nn::Embedding embed_tokens{{.vocab_size = 5, .hidden_size = 6}};
  TinyBlock layers[2];
  nn::VocabHead lm_head{{.vocab_size = 5, .hidden_size = 6}};
};

/// What() of the exception of type E that `act` throws; "" if it throws none.
template <typename E, typename Act>
std::string message_of(const Act& act) {
  try {
    act();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

}  // namespace apus::peft::testing
