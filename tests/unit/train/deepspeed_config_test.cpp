#include "train/deepspeed_config.h"

#include <gtest/gtest.h>

#include "tests/support/scratch_folder.h"
#include "tests/unit/train/support/strategy_case.h"

namespace apus::train {
namespace {

using memory::Residency;
using memory::StateResidency;

parallel::ShardedModelOptions engine_of(const std::string& deepspeed) {
  return engine_options(resolve_job(job_of(deepspeed), 4), {.world = 4, .local_world = 4});
}

std::string message(const std::string& text) {
  return refusal([&] { shard_policy(DeepspeedConfig(text)); });
}

TEST(DeepspeedConfig, PresetsHoldAStageAndWhereStatesLie) {
  const auto residency = [](const char* preset) { return engine_of(preset).policy.residency; };
  for (const char* preset : {"zero0", "zero1", "zero2", "zero3"}) {
    EXPECT_EQ(residency(preset), StateResidency()) << preset;
  }
  const StateResidency states{.optimizer = Residency::kHost};
  EXPECT_EQ(residency("zero2_offload"), states);
  EXPECT_TRUE(engine_of("zero2_offload").policy.grad_shard && !engine_of("zero2_offload").policy.param_shard);
  StateResidency all = states;
  all.gradients = all.parameters = Residency::kHost;
  EXPECT_EQ(residency("zero3_offload"), all);
  EXPECT_TRUE(engine_of("zero3_offload").policy.param_shard);
  EXPECT_EQ(resolve_job(job_of("zero3_offload"), 4).learning_rate, 1e-4) << "no optimizer section";
}

TEST(DeepspeedConfig, AFileAnObjectAndAPresetSayTheSame) {
  ScratchFolder folder;
  const std::string text = R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})";
  const std::string file = folder.put("ds", text).string();
  EXPECT_EQ(engine_of(file).policy.residency, engine_of("zero2_offload").policy.residency);
  EXPECT_EQ(engine_of(" " + text).policy.residency, engine_of("zero2_offload").policy.residency);
  const std::string broken = folder.put("broken.json", "{").string();
  EXPECT_EQ(message(broken).find("--deepspeed: " + broken), 0u) << message(broken);
  EXPECT_NE(message(folder.put("list.json", "[]").string()).find("expected a JSON object"),
            std::string::npos);
}

TEST(DeepspeedConfig, ARunsRecordHoldsTheObjectNotTheFilesName) {
  ScratchFolder folder;
  const std::string file = folder.put("ds.json", R"({"zero_optimization": {"stage": 2}})").string();
  const JobOptions once = resolve_job(job_of(file), 4);
  EXPECT_EQ(once.deepspeed, R"({"zero_optimization":{"stage":2}})");
  EXPECT_EQ(resolve_job(once, 4).deepspeed, once.deepspeed);
  EXPECT_EQ(resolve_job(job_of("zero2"), 4).deepspeed, "zero2");
}

TEST(DeepspeedConfig, MessagesNameTheFile) {
  ScratchFolder folder;
  const std::string file = folder.put("ds.json", R"({"zero_optimization": {"stage": 4}})").string();
  EXPECT_EQ(message(file),
            "--deepspeed " + file + ": zero_optimization.stage is 4; DeepSpeed's stages are 0, 1, 2 and 3");
  EXPECT_EQ(refusal([&] { resolve_job(job_of(file), 4); }), message(file)) << "of a whole job, too";
}

TEST(DeepspeedConfig, OffloadNeedsTheStageThatShardsWhatMoves) {
  EXPECT_EQ(
      message(R"({"zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}})"),
      "--deepspeed: zero_optimization.offload_optimizer device cpu needs zero_optimization.stage 1, 2 or "
      "3, and the stage is 0");
  EXPECT_EQ(
      message(R"({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}})"),
      "--deepspeed: zero_optimization.offload_param device cpu needs zero_optimization.stage 3, and the "
      "stage is 2");
  EXPECT_EQ(message(R"({"zero_optimization": {"stage": 1, "zero_hpz_partition_size": 2}})"),
            "--deepspeed: zero_optimization.zero_hpz_partition_size needs zero_optimization.stage 3, and the "
            "stage is 1");
  EXPECT_EQ(
      message(R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}})"),
      "--deepspeed: zero_optimization.offload_param.device nvme is not supported: host memory is, device "
      "cpu");
  EXPECT_NE(message(R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "tpu"}}})")
                .find("is not one of none, cpu"),
            std::string::npos);
  EXPECT_EQ(message(R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "none"}}})"),
            "accepted");
}

TEST(DeepspeedConfig, AtStageOneGradientsStayAndParametersMoveAlone) {
  const auto one =
      engine_of(R"({"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}})");
  EXPECT_EQ(one.policy.residency, StateResidency{.optimizer = Residency::kHost});
  const auto three = engine_of(R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}})");
  EXPECT_EQ(three.policy.residency, StateResidency{.parameters = Residency::kHost});
}

TEST(DeepspeedConfig, ABucketKeepsBothLimits) {
  EXPECT_EQ(engine_of("zero2").bucket_elements, 200'000'000);
  EXPECT_EQ(
      engine_of(
          R"({"zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8, "allgather_bucket_size": 3e8}})")
          .bucket_elements,
      300'000'000);
  EXPECT_EQ(engine_of(R"({"zero_optimization": {"reduce_bucket_size": "auto"}})").bucket_elements,
            200'000'000);
  EXPECT_NE(message(R"({"zero_optimization": {"reduce_bucket_size": 0.5}})").find("must be a whole number"),
            std::string::npos);
}

TEST(DeepspeedConfig, ActivationsMoveWhereBlocksAreRecomputed) {
  const std::string text = R"({"activation_checkpointing": {"cpu_checkpointing": true}})";
  EXPECT_EQ(engine_of(text).activations, Residency::kHost);
  EXPECT_EQ(engine_of(text).recompute, parallel::Recompute::kBlock);
  EXPECT_EQ(resolve_job(job_of(text), 4).gradient_checkpointing, true);
  EXPECT_EQ(
      refusal_of(text, [](auto& o) { o.gradient_checkpointing = false; }),
      "--gradient_checkpointing false and activation_checkpointing.cpu_checkpointing true of --deepspeed "
      "contradict each other: leave one of them out");
}

TEST(DeepspeedConfig, OptimizersAndSchedulesOfOthersAreNamed) {
  EXPECT_EQ(message(R"({"optimizer": {"type": "Lamb", "params": {"max_coeff": 1}}})"),
            "--deepspeed: optimizer.type Lamb is not supported: one of AdamW, Adam");
  EXPECT_EQ(message(R"({"scheduler": {"type": "OneCycle"}})"),
            "--deepspeed: scheduler.type OneCycle is not supported: one of WarmupLR, WarmupDecayLR, "
            "WarmupCosineLR");
  EXPECT_NE(message(R"({"scheduler": {"params": {}}})").find("scheduler.type is missing"), std::string::npos);
  EXPECT_NE(message(R"({"optimizer": {"type": "auto"}})").find("optimizer.type is \"auto\", and nothing"),
            std::string::npos);
}

TEST(DeepspeedConfig, WhatPeopleBringIsTakenAsItIs) {
  // The keys of transformers' example for stage 3, and of ms-swift's preset.
  const std::string transformers = R"({
      "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16,
               "hysteresis": 2, "min_loss_scale": 1},
      "bf16": {"enabled": "auto"},
      "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
                                                "weight_decay": "auto"}},
      "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                                                   "warmup_num_steps": "auto"}},
      "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": true},
          "offload_param": {"device": "cpu", "pin_memory": true}, "overlap_comm": true,
          "contiguous_gradients": true, "sub_group_size": 1e9, "reduce_bucket_size": "auto",
          "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
          "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
          "stage3_gather_16bit_weights_on_model_save": true},
      "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": 2000,
      "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": false})";
  EXPECT_EQ(refusal_of(transformers), "accepted");
  EXPECT_EQ(engine_of(transformers).policy.residency, engine_of("zero3_offload").policy.residency);
  EXPECT_EQ(refusal_of(R"({"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"},
      "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "none", "pin_memory": true},
          "offload_param": {"device": "none", "pin_memory": true}, "overlap_comm": false,
          "contiguous_gradients": true, "sub_group_size": 1e9, "reduce_bucket_size": "auto",
          "zero_quantized_weights": false, "zero_quantized_gradients": false,
          "stage3_gather_16bit_weights_on_model_save": true},
      "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "train_batch_size": "auto",
      "train_micro_batch_size_per_gpu": "auto"})"),
            "accepted");
}

TEST(DeepspeedConfig, OlderSpellingsCount) {
  EXPECT_EQ(resolve_job(job_of(R"({"bfloat16": {"enabled": true}})"), 4).torch_dtype, "bfloat16");
  EXPECT_NE(message(R"({"zero_optimization": true})").find("zero_optimization is an object"),
            std::string::npos);
}

TEST(DeepspeedConfig, KeysThatNobodyKnowsNameTheNearest) {
  EXPECT_EQ(message(R"({"zero_optimization": {"stage": 2, "overlap_com": true}})"),
            "--deepspeed: nobody knows the key zero_optimization.overlap_com (did you mean 'overlap_comm'?)");
  EXPECT_EQ(
      message(R"({"overlap_comm": true})"),
      "--deepspeed: nobody knows the key overlap_comm (did you mean 'zero_optimization.overlap_comm'?)");
}

TEST(DeepspeedConfig, OlderSpellingsBesideNewerOnes) {
  EXPECT_EQ(message(R"({"bfloat16": {"enabled": true}, "bf16": {"enabled": true}})"),
            "--deepspeed: bf16 and bfloat16 are one section; leave the older, bfloat16, out");
  EXPECT_EQ(
      message(
          R"({"zero_optimization": {"stage": 2, "cpu_offload": true, "offload_optimizer": {"device": "none"}}})"),
      "--deepspeed: zero_optimization.offload_optimizer.device none and zero_optimization.cpu_offload true "
      "contradict each other: leave the older key out");
  EXPECT_NE(
      message(
          R"({"zero_optimization": {"stage": 3, "cpu_offload_param": false, "offload_param": {"device": "cpu"}}})")
          .find("offload_param.device cpu and zero_optimization.cpu_offload_param false contradict"),
      std::string::npos);
  EXPECT_EQ(
      message(
          R"({"zero_optimization": {"stage": 2, "cpu_offload": true, "offload_optimizer": {"device": "cpu"}}})"),
      "accepted");
}

TEST(DeepspeedConfig, AKeyThatStandsTwiceIsNamed) {
  EXPECT_NE(
      message(R"({"zero_optimization": {"stage": 2, "stage": 3}})").find("the key 'stage' stands twice"),
      std::string::npos);
}

}  // namespace
}  // namespace apus::train
