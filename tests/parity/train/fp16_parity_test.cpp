// SFT trajectories in fp16 under a dynamic loss scale against transformers' Trainer in fp32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "apus/base/json.h"
#include "apus/comm/gloo_communicator.h"
#include "apus/comm/store.h"
#include "apus/peft/adapter_file.h"
#include "apus/train/sft_objective.h"
#include "apus/train/trainer.h"
#include "tests/support/case_folder.h"
#include "tests/support/sft_case.h"

namespace apus::testing {
namespace {

parallel::ShardedModelOptions in_fp16() {
  return {.compute_dtype = at::kHalf, .frozen_dtype = at::kHalf};
}

/// A skipped step leaves nothing behind, so that the same rows again give the trajectory's step.
void expect_losses(parallel::ShardedModel& engine, const fs::path& folder,
                   std::vector<std::string> adapters) {
  const nlohmann::json trajectory = load_json_file(folder / "trajectory.json");
  const nlohmann::json batches = load_json_file(cases::require_for_case(folder, "batches.json"));
  const nlohmann::json& numbers = trajectory.at("hyperparameters");
  SystemClock clock;
  NullLogger logger;
  train::TrainerOptions options = options_of(numbers);
  options.fp16.enabled = true;
  train::Trainer trainer(
      engine,
      std::make_shared<train::SftObjective>(train::SftObjectiveOptions{.adapters = std::move(adapters)}),
      options, {.clock = &clock, .logger = &logger});
  EXPECT_EQ(trainer.loss_scaler()->scale(), 65536.0);
  const optim::LrSchedule schedule = schedule_of(numbers);
  for (size_t step = 0; step < trajectory.at("steps").size(); ++step) {
    const nlohmann::json& wanted = trajectory.at("steps")[step];
    train::StepReport found{.skipped = true};
    for (int tries = 0; found.skipped && tries < 20; ++tries)
      found = trainer.step(step_batches(batches.at("steps")[step]), schedule.lr(static_cast<int64_t>(step)));
    ASSERT_FALSE(found.skipped);
    const std::string what = cases::case_name(folder) + detail::concat(", step ", step);
    EXPECT_NEAR(found.loss, wanted.at("loss").get<double>(), 2e-3) << what;
    const auto norm = wanted.at("grad_norm").get<double>();
    EXPECT_NEAR(found.grad_norm, norm, 2e-2 * norm) << what << ": without the scale";
  }
  EXPECT_GE(trainer.loss_scaler()->scale(), 256.0);
}

TEST(Fp16Parity, FullFineTuningFollowsTransformersInFp32) {
  for (const fs::path& folder : cases_of("sft")) {
    const auto base = load_base(folder);
    nn::make_trainable(*base.model);
    const auto dp = comm::GlooCommunicator::create(comm::make_hash_store(), {});
    parallel::ShardedModel engine(*base.model, *dp, in_fp16());
    for (const auto& group : engine.units().groups()) {
      EXPECT_EQ(group->own_params().scalar_type(), at::kHalf);
      EXPECT_EQ(group->masters().scalar_type(), at::kFloat);
    }
    expect_losses(engine, folder, {});
  }
}

TEST(Fp16Parity, LoraFollowsTransformersInFp32) {
  for (const fs::path& folder : cases_of("lora")) {
    const auto base = load_base_of_adapter(folder);
    try {
      peft::load_adapter((folder / "adapter").string(), *base.model, "default");
    } catch (const NotSupported&) {
      continue;  // listed by SftParity.LoraTrajectoryEqualsTransformersWithPeft
    }
    const auto dp = comm::GlooCommunicator::create(comm::make_hash_store(), {});
    parallel::ShardedModel engine(*base.model, *dp, in_fp16());
    expect_losses(engine, folder, {"default"});
  }
}

}  // namespace
}  // namespace apus::testing
