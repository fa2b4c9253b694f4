#include "apus/train/reference.h"

#include <gtest/gtest.h>

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "apus/base/error.h"
#include "apus/comm/fake_communicator.h"
#include "apus/peft/adapter_file.h"
#include "apus/train/answer_log_probs.h"
#include "apus/train/dpo_trainer.h"
#include "tests/support/rank_threads.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_training.h"

namespace apus::train {
namespace {

using testing::Job;

const testing::TinyRun kRun{.job = Job::kLoraDpo};

/// A tiny model whose trained adapter has left its start.
std::unique_ptr<models::Qwen2> moved_model() {
  auto model = testing::tiny_model(kRun);
  const at::NoGradGuard no_grad;
  for (const nn::NamedParameter& parameter : peft::adapter_parameters(*model, "default"))
    if (parameter.name.find("lora_B") != std::string::npos) parameter.tensor.fill_(0.05);
  return model;
}

data::Batch pairs(const std::vector<int64_t>& ordinals = {0, 1, 2}) {
  return testing::tiny_rows(Job::kLoraDpo, 6)->collate(ordinals, {});
}

/// Log-probabilities under adapters, by a pass on one rank.
at::Tensor alone(nn::CausalLm& model, const std::vector<std::string>& adapters) {
  const at::NoGradGuard no_grad;
  const auto dp = comm::make_fake_communicator({});
  parallel::ShardedModelOptions options;
  const auto is_trainable = [](const nn::NamedParameter& parameter) {
    return parameter.tensor.requires_grad();
  };
  if (std::ranges::none_of(model.named_parameters(), is_trainable))
    options.use = parallel::ModelUse::kReference;
  parallel::ShardedModel engine(model, *dp, options);
  return answer_log_probs(engine, pairs(), {.adapters = adapters}).plain;
}

/// What the base says, and what it says under the adapter.
at::Tensor base_log_probs() {
  return alone(*moved_model(), {});
}
at::Tensor policy_log_probs() {
  return alone(*moved_model(), {"default"});
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return a.sub(b).abs().max().item<double>();
}

struct Bench {
  std::unique_ptr<comm::Communicator> dp = comm::make_fake_communicator({});
  std::unique_ptr<models::Qwen2> model = moved_model();
  std::unique_ptr<parallel::ShardedModel> engine;

  parallel::ShardedModel& start() {
    engine = std::make_unique<parallel::ShardedModel>(*model, *dp, parallel::ShardedModelOptions{});
    return *engine;
  }
};

std::string refusal(const Reference& reference, parallel::ShardedModel& trained) {
  try {
    check_reference(reference, trained);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

TEST(Reference, SaysWhatItIs) {
  EXPECT_EQ(Reference::adapters_off().sentence(), "the base with adapters off");
  EXPECT_EQ(Reference::adapter({"old"}, "").sentence(), "the base under adapter old, frozen");
  EXPECT_EQ(Reference::adapter({"r"}, "a frozen copy of --adapters as loaded").sentence(),
            "a frozen copy of --adapters as loaded");
  Bench bench;
  Reference second = Reference::second_model(bench.start(), "/models/base");
  EXPECT_EQ(second.sentence(), "a second, frozen model from /models/base");
  second.is_precomputed = true;
  EXPECT_EQ(second.sentence(),
            "a second, frozen model from /models/base, its log-probabilities computed ahead");
  EXPECT_EQ(Reference::none().sentence(),
            "none (reference_free): the policy is compared with log-probabilities of 0");
}

TEST(Reference, IsTheBaseWithTheAdapterOff) {
  Bench bench;
  const at::Tensor found = reference_log_probs(Reference::adapters_off(), bench.start(), pairs());
  EXPECT_LT(distance(found, base_log_probs()), 1e-6);
  EXPECT_GT(distance(found, policy_log_probs()), 1e-2) << "the adapter says something else";
  EXPECT_FALSE(found.requires_grad());
}

TEST(Reference, IsAFrozenCopyOfTheAdapter) {
  Bench bench;
  peft::copy_adapter(*bench.model, "default", "reference");
  const at::Tensor found = reference_log_probs(Reference::adapter({"reference"}, ""), bench.start(), pairs());
  EXPECT_LT(distance(found, policy_log_probs()), 1e-6);
}

TEST(Reference, IsAnotherAdaptersFolderWithItsOwnRankAndTargets) {
  const ScratchFolder scratch;
  auto other = testing::frozen_tiny_model(kRun);
  peft::LoraConfig config{.r = 2, .lora_alpha = 16};
  config.targets = peft::LoraTargets::from_names({"q_proj", "down_proj"});
  const peft::LoraSummary made = peft::apply_lora(*other, config, "mine", {.seed = 9});
  for (const nn::NamedParameter& parameter : peft::adapter_parameters(*other, "mine"))
    parameter.tensor.detach().fill_(0.1);
  peft::save_adapter((scratch / "a").string(), made.config, peft::adapter_parameters(*other, "mine"), "mine");
  const at::Tensor wanted = alone(*other, {"mine"});

  Bench bench;
  const Reference reference = load_reference_adapter((scratch / "a").string(), *bench.model, "reference");
  EXPECT_EQ(reference.sentence(), "the adapter in " + (scratch / "a").string() + ", frozen");
  EXPECT_TRUE(refusal(reference, bench.start()).empty());
  const at::Tensor found = reference_log_probs(reference, *bench.engine, pairs());
  EXPECT_LT(distance(found, wanted), 1e-5);
  EXPECT_GT(distance(found, base_log_probs()), 1e-2);
}

TEST(Reference, IsASecondModel) {
  Bench bench;
  models::PretrainedModel loaded;
  loaded.model = testing::frozen_tiny_model({.layers = 1});
  loaded.folder = "/models/other";
  const at::Tensor wanted = alone(*testing::frozen_tiny_model({.layers = 1}), {});
  ReferenceModel model(std::move(loaded), *bench.dp, {.recompute = parallel::Recompute::kBlock});
  EXPECT_EQ(model.engine().options().use, parallel::ModelUse::kReference);
  EXPECT_TRUE(refusal(model.reference(), bench.start()).empty());
  const at::Tensor found = reference_log_probs(model.reference(), *bench.engine, pairs());
  EXPECT_LT(distance(found, wanted), 1e-6);
  EXPECT_GT(distance(found, base_log_probs()), 1e-2);
}

TEST(Reference, NoneIsZeros) {
  Bench bench;
  const at::Tensor found = reference_log_probs(Reference::none(), bench.start(), pairs());
  EXPECT_EQ(found.numel(), 6);
  EXPECT_EQ(found.abs().max().item<double>(), 0.0);
}

TEST(Reference, PrecomputedReadsTheBatchAndRunsNothing) {
  Bench bench;
  Reference reference = Reference::second_model(bench.start(), "");
  reference.model = nullptr;  // nothing there that could run
  reference.is_precomputed = true;
  data::Batch batch = pairs();
  batch.reference_log_probs_S = base_log_probs();
  EXPECT_TRUE(reference_log_probs(reference, *bench.engine, batch).equal(batch.reference_log_probs_S));
  EXPECT_THROW(reference_log_probs(reference, *bench.engine, pairs()), ConfigError);
  EXPECT_EQ(reference_log_probs(reference, *bench.engine, pairs({})).numel(), 2);
}

TEST(Reference, OneThatWouldMoveIsRefused) {
  Bench bench;
  auto trained = testing::tiny_model({.job = Job::kFullDpo});
  parallel::ShardedModel second(*trained, *bench.dp, {});
  bench.start();
  EXPECT_NE(refusal(Reference::adapter({"default"}, ""), *bench.engine).find("is trainable"),
            std::string::npos);
  EXPECT_NE(refusal(Reference::adapter({"lost"}, ""), *bench.engine).find("no adapter \"lost\""),
            std::string::npos);
  EXPECT_NE(refusal(Reference::second_model(second, ""), *bench.engine).find("is trainable"),
            std::string::npos);
  EXPECT_NE(refusal(Reference::second_model(*bench.engine, ""), *bench.engine).find("not the trained one"),
            std::string::npos);
  EXPECT_TRUE(refusal(Reference::none(), *bench.engine).empty());
}

/// Trains two steps under a policy that shards, then looks at every kind of reference.
void expect_right_references(const parallel::ShardPolicy& policy, std::shared_ptr<comm::Communicator> dp) {
  auto model = moved_model();
  peft::copy_adapter(*model, "default", "reference");
  parallel::ShardedModelOptions options{.policy = policy, .recompute = parallel::Recompute::kBlock};
  options.poison_released = true;
  options.frozen = parallel::Placement::kSharded;
  parallel::ShardedModel engine(*model, *dp, options);
  models::PretrainedModel loaded;
  loaded.model = testing::frozen_tiny_model(kRun);
  ReferenceModel second(std::move(loaded), *dp, options);

  SystemClock clock;
  NullLogger logger;
  DpoTrainer trainer(engine, {.dpo = {}, .trainer = testing::tiny_options(kRun)},
                     {.clock = &clock, .logger = &logger});
  trainer.step({pairs({dp->rank()})}, 1e-2);
  trainer.step({pairs({dp->rank() + 2})}, 1e-2);

  const std::string what = detail::concat(policy.name, ", rank ", dp->rank());
  EXPECT_LT(distance(reference_log_probs(Reference::adapters_off(), engine, pairs()), base_log_probs()), 2e-5)
      << what;
  EXPECT_LT(distance(reference_log_probs(second.reference(), engine, pairs()), base_log_probs()), 2e-5)
      << what;
  EXPECT_LT(distance(reference_log_probs(Reference::adapter({"reference"}, ""), engine, pairs()),
                     policy_log_probs()),
            2e-5)
      << what;
  const at::NoGradGuard no_grad;
  EXPECT_GT(distance(answer_log_probs(engine, pairs(), {.adapters = {"default"}}).plain, policy_log_probs()),
            1e-3)
      << what << ": the policy has moved on";
}

TEST(Reference, PitfallRow40UnderZero3AndFsdpTheReferenceIsRightAndTheAdapterOff) {
  for (const parallel::ShardPolicy& policy :
       {parallel::ShardPolicy(parallel::Zero3()), parallel::ShardPolicy(parallel::Fsdp())}) {
    testing::run_ranks(
        2, [&](std::shared_ptr<comm::Communicator> dp) { expect_right_references(policy, std::move(dp)); });
  }
}

}  // namespace
}  // namespace apus::train
