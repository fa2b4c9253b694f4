#include "apus/optim/decay_rule.h"

#include <gtest/gtest.h>

namespace apus::optim {
namespace {

TEST(DecayRule, MatricesAreDecayedAdaptersAndEmbeddingsAmongThem) {
  EXPECT_TRUE(takes_weight_decay("model.layers.0.self_attn.q_proj.weight", 2));
  EXPECT_TRUE(takes_weight_decay("model.embed_tokens.weight", 2));
  EXPECT_TRUE(takes_weight_decay("lm_head.weight", 2));
  EXPECT_TRUE(takes_weight_decay("model.layers.0.mlp.up_proj.lora_A.default.weight", 2));
  EXPECT_TRUE(takes_weight_decay("model.layers.0.mlp.up_proj.lora_B.default.weight", 2));
}

TEST(DecayRule, NormsAndBiasesAreNot) {
  EXPECT_FALSE(takes_weight_decay("model.norm.weight", 1));
  EXPECT_FALSE(takes_weight_decay("model.layers.0.input_layernorm.weight", 1));
  EXPECT_FALSE(takes_weight_decay("model.layers.0.self_attn.k_proj.bias", 1));
  EXPECT_FALSE(takes_weight_decay("experts.bias", 2)) << "a bias stays one when experts are stacked";
  EXPECT_FALSE(takes_weight_decay("bias", 2));
}

TEST(DecayRule, OnlyTheLastPartOfTheNameCounts) {
  EXPECT_TRUE(takes_weight_decay("model.bias.weight", 2));
  EXPECT_TRUE(takes_weight_decay("model.antibias", 2));
}

}  // namespace
}  // namespace apus::optim
