#include "apus/models/model_spec.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/models/decoder_config.h"

namespace apus::models {
namespace {

ModelRegistry builtin() {
  ModelRegistry registry;
  register_builtin_models(registry);
  return registry;
}

ModelSpec named(const std::string& model_type) {
  ModelSpec spec = builtin().find("qwen2");
  spec.model_type = model_type;
  return spec;
}

TEST(ModelRegistry, KnowsWhatWasAdded) {
  ModelRegistry registry = builtin();
  registry.add(named("a_model"));
  std::vector<std::string> wanted = decoder_model_types();
  wanted.insert(wanted.begin(), "a_model");
  EXPECT_EQ(registry.model_types(), wanted);
  EXPECT_TRUE(registry.has("qwen2"));
  EXPECT_EQ(registry.find("qwen2").architecture, "Qwen2ForCausalLM");
}

TEST(ModelRegistry, NamesTheUnknownKindTheNearestAndTheKnown) {
  try {
    builtin().find("qwen4");
    FAIL() << "did not throw";
  } catch (const NotSupported& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("model_type 'qwen4' is not supported"), std::string::npos) << message;
    EXPECT_NE(message.find("supported: internlm3, llama, mistral, qwen2, qwen3"), std::string::npos)
        << message;
  }
}

TEST(ModelRegistry, RefusesADoubleOrUnfinishedEntry) {
  ModelRegistry registry = builtin();
  EXPECT_THROW(registry.add(named("qwen2")), ConfigError);
  EXPECT_THROW(registry.add(named("")), ConfigError);
  ModelSpec spec = named("other");
  spec.build = nullptr;
  EXPECT_THROW(registry.add(spec), ConfigError);
}

TEST(ConfigDtype, ReadsBothSpellings) {
  using nlohmann::json;
  EXPECT_EQ(config_dtype(json{{"torch_dtype", "bfloat16"}}, "c"), at::kBFloat16);
  EXPECT_EQ(config_dtype(json{{"dtype", "float32"}}, "c"), at::kFloat);
  EXPECT_EQ(config_dtype(json{{"torch_dtype", nullptr}}, "c"), std::nullopt);
  EXPECT_EQ(config_dtype(json::object(), "c"), std::nullopt);
}

TEST(ConfigDtype, RefusesOneThatModelsDoNotComputeIn) {
  EXPECT_THROW(config_dtype(nlohmann::json{{"dtype", "float64"}}, "c"), NotSupported);
  EXPECT_THROW(config_dtype(nlohmann::json{{"dtype", "bananas"}}, "c"), ConfigError);
  EXPECT_THROW(config_dtype(nlohmann::json{{"dtype", 16}}, "c"), DataError);
}

TEST(TokenFlops, BackwardIsTwiceTheForwardAndFrozenWeightsSaveOneProduct) {
  const TokenFlops flops = {.matmul = 10, .attention = 1};
  EXPECT_DOUBLE_EQ(flops.forward(), 11);
  EXPECT_DOUBLE_EQ(flops.train(), 33);
  EXPECT_DOUBLE_EQ(flops.train_frozen(), 23);
}

}  // namespace
}  // namespace apus::models
