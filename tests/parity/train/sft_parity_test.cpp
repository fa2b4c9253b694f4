// SFT trajectories against transformers' Trainer: full fine-tuning (kind sft) and LoRA (kind lora).
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <optional>

#include "apus/base/json.h"
#include "apus/base/safetensors.h"
#include "apus/peft/adapter_file.h"
#include "apus/train/sft_objective.h"
#include "apus/train/trainer.h"
#include "tests/support/case_folder.h"
#include "tests/support/rank_threads.h"
#include "tests/support/sft_case.h"
#include "tests/support/stored_floats.h"

namespace apus::testing {
namespace {

/// This rank's share of a step: its micro-batches in turn, and an empty one where they do not go round.
std::vector<data::Batch> share_of(std::vector<data::Batch> all, const comm::Communicator& dp) {
  std::vector<data::Batch> own;
  const auto world = static_cast<size_t>(dp.size()), rank = static_cast<size_t>(dp.rank());
  for (size_t first = 0; first < all.size(); first += world) {
    own.push_back(first + rank < all.size() ? std::move(all[first + rank]) : data::collate_sft({}, {}, {}));
  }
  return own;
}

/// Runs the whole trajectory and compares each step; the engine is left after the last one.
void expect_steps(parallel::ShardedModel& engine, const fs::path& folder, std::vector<std::string> adapters) {
  const nlohmann::json trajectory = load_json_file(folder / "trajectory.json");
  const nlohmann::json batches = load_json_file(cases::require_for_case(folder, "batches.json"));
  const nlohmann::json& numbers = trajectory.at("hyperparameters");
  SystemClock clock;
  NullLogger logger;
  train::Trainer trainer(engine, std::make_shared<train::SftObjective>(train::SftObjectiveOptions{.adapters = std::move(adapters)}), options_of(numbers),
                         {.clock = &clock, .logger = &logger});
  const optim::LrSchedule schedule = schedule_of(numbers);
  for (size_t step = 0; step < trajectory.at("steps").size(); ++step) {
    const nlohmann::json& wanted = trajectory.at("steps")[step];
    const train::StepReport found = trainer.step(share_of(step_batches(batches.at("steps")[step]), engine.dp()), schedule.lr(static_cast<int64_t>(step)));
    const std::string what = cases::case_name(folder) + detail::concat(", step ", step);
    EXPECT_NEAR(found.loss, wanted.at("loss").get<double>(), 1e-5 * wanted.at("loss").get<double>()) << what;
    EXPECT_NEAR(found.grad_norm, wanted.at("grad_norm").get<double>(), 1e-5 * wanted.at("grad_norm").get<double>()) << what;
    EXPECT_NEAR(found.learning_rate, wanted.at("learning_rate").get<double>(), 1e-12) << what;
  }
}

/// How close final weights must be.
struct FinalTolerance {
  double nearly_all;  ///< for 99.9 % of the elements
  double all;
};

void expect_final(parallel::ShardedModel& engine, const SafetensorsFile& golden, FinalTolerance tolerance,
                  const std::function<std::string(const std::string&)>& key) {
  double total = 0, outside = 0, worst = 0;
  for (const auto& parameter : engine.gather_masters()) {
    const at::Tensor difference = (parameter.tensor - read_floats(golden.at(key(parameter.name)))).abs();
    // Attention hardly sees a key's bias: its gradient is rounding noise, and Adam divides noise by noise.
    if (parameter.name.find("k_proj.") != std::string::npos && parameter.name.ends_with(".bias")) {
      EXPECT_LE(difference.max().item<double>(), 1e-3) << golden.path() << ": " << parameter.name;
      continue;
    }
    total += static_cast<double>(difference.numel());
    outside += difference.gt(tolerance.nearly_all).sum().item<double>();
    worst = std::max(worst, difference.max().item<double>());
  }
  EXPECT_LE(outside, 1e-3 * total) << golden.path();
  EXPECT_LE(worst, tolerance.all) << golden.path();
}

TEST(SftParity, FullFineTuningEqualsTransformers) {
  for (const fs::path& folder : cases_of("sft")) {
    const auto base = load_base(folder);
    nn::make_trainable(*base.model);
    const auto dp = comm::GlooCommunicator::create(comm::make_hash_store(), {});
    parallel::ShardedModel engine(*base.model, *dp, {});
    expect_steps(engine, folder, {});
    expect_final(engine, SafetensorsFile(folder / "final.safetensors"), {2e-6, 1e-3}, [](const std::string& name) { return name; });
  }
}

TEST(SftParity, LoraTrajectoryEqualsTransformersWithPeft) {
  cases::NotRunCases not_run;
  for (const fs::path& folder : cases_of("lora")) {
    const auto base = load_base_of_adapter(folder);
    try {
      peft::load_adapter((folder / "adapter").string(), *base.model, "default");
    } catch (const NotSupported& error) {
      not_run.add(cases::case_name(folder), error.what());
      continue;
    }
    const auto dp = comm::GlooCommunicator::create(comm::make_hash_store(), {});
    parallel::ShardedModel engine(*base.model, *dp, {});
    expect_steps(engine, folder, {"default"});
    expect_final(engine, SafetensorsFile(folder / "final_adapter.safetensors"), {5e-6, 5e-6},
                 [](const std::string& name) { return peft::adapter_key(name, "default"); });
  }
}

TEST(SftParity, FourRanksUnderZero3EqualTransformersToo) {
  for (const fs::path& folder : cases_of("sft")) {
    run_ranks(4, [&](std::shared_ptr<comm::Communicator> dp) {
      const auto base = load_base(folder);
      nn::make_trainable(*base.model);
      parallel::ShardedModel engine(*base.model, *dp, {.policy = parallel::Zero3()});
      expect_steps(engine, folder, {});
      expect_final(engine, SafetensorsFile(folder / "final.safetensors"), {2e-6, 1e-3},
                   [](const std::string& name) { return name; });
    });
  }
}

TEST(SftParity, FourRanksWithAShardedBaseEqualPeftToo) {
  for (const fs::path& folder : cases_of("lora")) {
    run_ranks(4, [&](std::shared_ptr<comm::Communicator> dp) {
      const auto base = load_base_of_adapter(folder);
      try {
        peft::load_adapter((folder / "adapter").string(), *base.model, "default");
      } catch (const NotSupported&) {
        return;  // listed by LoraTrajectoryEqualsTransformersWithPeft
      }
      parallel::ShardedModel engine(*base.model, *dp, {.policy = parallel::Zero3()});
      EXPECT_FALSE(engine.units().frozen_groups().empty()) << "the base is sharded";
      expect_steps(engine, folder, {"default"});
      expect_final(engine, SafetensorsFile(folder / "final_adapter.safetensors"), {5e-6, 5e-6},
                   [](const std::string& name) { return peft::adapter_key(name, "default"); });
    });
  }
}

}  // namespace
}  // namespace apus::testing
