#include "apus/train/memory_plan_shape.h"

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/base/memory_usage.h"
#include "apus/models/qwen2.h"
#include "apus/peft/lora.h"
#include "tests/unit/train/support/plan_models.h"

namespace apus::train {
namespace {

using apus::testing::builtin_models;

TEST(MemoryPlanShape, ReadsAConfigWithoutTakingMemory) {
  const int64_t before = resident_anonymous_bytes();
  const ModelShape shape = shape_of_config(apus::testing::qwen_72b(), builtin_models(), at::kBFloat16);
  EXPECT_LT(resident_anonymous_bytes() - before, int64_t{64} << 20);
  EXPECT_EQ(shape.elements(), 72'706'203'648);
  EXPECT_EQ(shape.blocks(), 80);
  EXPECT_EQ(shape.attention_heads, 64);
  EXPECT_EQ(shape.trainable_elements(), 0);
}

TEST(MemoryPlanShape, EqualsThatOfTheModelItself) {
  models::Qwen2 model({.tie_word_embeddings = true}, at::kFloat);
  const ModelShape shape = shape_of(model);
  int64_t elements = 0;
  for (const nn::NamedParameter& parameter : model.named_parameters()) elements += parameter.tensor.numel();
  EXPECT_EQ(shape.elements(), elements);  // the tied weight once
  ASSERT_EQ(shape.units.size(), 4u);
  EXPECT_EQ(shape.units.back().parameters.back().name, "model.embed_tokens.weight");
}

TEST(MemoryPlanShape, AnAdapterHasTheParametersThatTheRealOneHas) {
  models::Qwen2 model({}, at::kFloat);
  ModelShape shape = shape_of(model);
  peft::LoraConfig config{.r = 4};
  config.targets.all_linear = true;
  const peft::LoraSummary real = peft::apply_lora(model, config, "default", {});
  add_adapter(shape, {.rank = [](const std::string&) { return 4; }});
  EXPECT_EQ(shape.trainable_elements(), real.parameters);
  const ModelShape with_adapter = shape_of(model);
  EXPECT_EQ(shape.elements(), with_adapter.elements());
}

TEST(MemoryPlanShape, OnlyTargetedProjectionsGetAnAdapter) {
  ModelShape shape = shape_of_config(apus::testing::qwen_7b(), builtin_models(), at::kBFloat16);
  add_adapter(shape, {.rank = [](const std::string& path) { return path.ends_with("q_proj") ? 8 : 0; }});
  EXPECT_EQ(shape.trainable_elements(), 28 * 8 * (3584 + 3584));
  EXPECT_THROW(add_adapter(shape, {.name = "none", .rank = [](const std::string&) { return 0; }}),
               ConfigError);
}

TEST(MemoryPlanShape, UnknownKindsAreRefused) {
  nlohmann::json config = apus::testing::qwen_7b();
  config["model_type"] = "qwen9";
  EXPECT_THROW(shape_of_config(config, builtin_models(), at::kFloat), NotSupported);
}

}  // namespace
}  // namespace apus::train
