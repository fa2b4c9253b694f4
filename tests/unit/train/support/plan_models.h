#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "apus/models/model_spec.h"
#include "apus/train/memory_plan.h"

/// Configs of public models, for plans: shapes alone, no weights.
namespace apus::testing {

/// Sizes of a Qwen2.5 model.
struct QwenSizes {
  int64_t hidden = 0, ffn = 0, layers = 0, heads = 0, kv_heads = 0;
};

inline nlohmann::json qwen_config(const QwenSizes& sizes) {
  return {{"model_type", "qwen2"},
          {"vocab_size", 152064},
          {"hidden_size", sizes.hidden},
          {"intermediate_size", sizes.ffn},
          {"num_hidden_layers", sizes.layers},
          {"num_attention_heads", sizes.heads},
          {"num_key_value_heads", sizes.kv_heads},
          {"max_position_embeddings", 32768},
          {"torch_dtype", "bfloat16"}};
}

inline nlohmann::json qwen_7b() {
  return qwen_config({3584, 18944, 28, 28, 4});
}
inline nlohmann::json qwen_14b() {
  return qwen_config({5120, 13824, 48, 40, 8});
}
inline nlohmann::json qwen_72b() {
  return qwen_config({8192, 29568, 80, 64, 8});
}

inline models::ModelRegistry builtin_models() {
  models::ModelRegistry registry;
  models::register_builtin_models(registry);
  return registry;
}

/// LoRA of this rank on every projection of a model, on `world` cards in bf16.
inline train::PlanInput lora_plan(const nlohmann::json& config, int64_t rank, int world,
                                  const parallel::ShardPolicy& policy) {
  train::PlanInput input{.model = train::shape_of_config(config, builtin_models(), at::kBFloat16),
                         .engine = {.policy = policy, .compute_dtype = at::kBFloat16},
                         .dtype = at::kBFloat16,
                         .world = world};
  train::add_adapter(input.model, {.rank = [rank](const std::string&) { return rank; }});
  return input;
}

/// All parameters of a model trained, on `world` cards in bf16.
inline train::PlanInput full_plan(const nlohmann::json& config, int world,
                                  const parallel::ShardPolicy& policy) {
  train::PlanInput input{.model = train::shape_of_config(config, builtin_models(), at::kBFloat16),
                         .engine = {.policy = policy, .compute_dtype = at::kBFloat16},
                         .dtype = at::kBFloat16,
                         .world = world};
  train::set_trainable(input.model, [](const std::string&) { return true; });
  return input;
}

}  // namespace apus::testing
