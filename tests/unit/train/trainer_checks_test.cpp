#include "train/trainer_checks.h"

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "tests/support/tiny_training.h"

namespace apus::train {
namespace {

/// A frozen model with an adapter.
std::unique_ptr<models::Qwen2> adapted(peft::LoraConfig config) {
  auto model = testing::frozen_tiny_model({.tied = false});
  config.r = 4;
  config.targets.all_linear = true;
  peft::apply_lora(*model, config, "mine", {.seed = 5});
  return model;
}

TEST(TrainerChecks, EveryPartOfATrainableAdapterMustBeActive) {
  const auto model = adapted({.modules_to_save = {"lm_head"}});
  EXPECT_NO_THROW(require_active_adapters(*model, {"mine"}));
  for (const nn::NamedParameter& parameter : model->named_parameters()) {
    if (parameter.name.find("lora_") == std::string::npos) continue;
    at::Tensor tensor = parameter.tensor;
    tensor.set_requires_grad(false);
  }
  try {
    require_active_adapters(*model, {});
    FAIL() << "did not throw";
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("adapter \"mine\" is trainable"), std::string::npos) << message;
    EXPECT_NE(message.find("modules_to_save.mine"), std::string::npos) << message;
  }
}

TEST(TrainerChecks, DropoutOfOtherAdaptersDoesNotCount) {
  const auto dropping = adapted({.lora_dropout = 0.1}), plain = adapted({});
  EXPECT_TRUE(has_adapter_dropout(*dropping, {"mine"}));
  EXPECT_FALSE(has_adapter_dropout(*dropping, {}));
  EXPECT_FALSE(has_adapter_dropout(*dropping, {"other"}));
  EXPECT_FALSE(has_adapter_dropout(*plain, {"mine"}));
}

TEST(TrainerChecks, AReferenceThatWouldMoveIsRefused) {
  const auto model = adapted({});
  EXPECT_THROW(require_frozen_adapters(*model, {"mine"}), ConfigError);
  EXPECT_THROW(require_frozen_adapters(*model, {"absent"}), ConfigError);
}

TEST(TrainerChecks, RowsOfTheOtherKindAreRefused) {
  const auto texts = testing::tiny_rows(testing::Job::kFullSft, 1),
             pairs = testing::tiny_rows(testing::Job::kLoraDpo, 1);
  EXPECT_NO_THROW(require_rows(*texts, RowKind::kTexts, {}));
  EXPECT_NO_THROW(require_rows(*pairs, RowKind::kPairs, {}));
  EXPECT_THROW(require_rows(*texts, RowKind::kPairs, {}), ConfigError);
  EXPECT_THROW(require_rows(*pairs, RowKind::kTexts, {}), ConfigError);
  EXPECT_NO_THROW(require_rows(data::SftDataset(std::vector<data::SftRow>{}), RowKind::kPairs, {}))
      << "no row to tell";
}

}  // namespace
}  // namespace apus::train
