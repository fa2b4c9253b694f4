// The configuration that a run prints at its start.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/train/support/strategy_case.h"
#include "train/deepspeed_config.h"

namespace apus::train {
namespace {

using Json = nlohmann::ordered_json;

Json printed(const JobOptions& options) {
  return strategy_json(resolve_job(options, 4), {.world = 4, .local_world = 4}, 200);
}

TEST(StrategyJson, EveryStrategySaysAllItsSections) {
  for (const char* preset : {"", "zero0", "zero1", "zero2", "zero2_offload", "zero3", "zero3_offload"}) {
    const Json json = printed(job_of(preset));
    for (const char* key : {"train_batch_size", "train_micro_batch_size_per_gpu",
                            "gradient_accumulation_steps", "gradient_clipping", "optimizer", "scheduler",
                            "fp16", "bf16", "zero_optimization", "communication_data_type", "data_types"}) {
      EXPECT_TRUE(json.contains(key)) << preset << " " << key;
    }
    EXPECT_EQ(json.dump().find("auto"), std::string::npos);
  }
}

TEST(StrategyJson, OffloadStandsWhereDeepSpeedHasIt) {
  const Json zero = printed(job_of("zero3_offload")).at("zero_optimization");
  EXPECT_EQ(zero.at("offload_optimizer"), Json({{"device", "cpu"}, {"pin_memory", true}}));
  EXPECT_EQ(zero.at("offload_param").at("device"), "cpu");
  const Json two = printed(job_of("zero2")).at("zero_optimization");
  EXPECT_EQ(two.at("offload_optimizer"), Json({{"device", "none"}}));
  EXPECT_FALSE(two.contains("offload_param"));
  EXPECT_FALSE(printed(job_of("zero0")).at("zero_optimization").contains("offload_optimizer"));
}

TEST(StrategyJson, WhatWasAutoIsResolved) {
  JobOptions options = job_of(R"({"train_batch_size": "auto", "optimizer": {"type": "AdamW", "params": {"lr":
      "auto"}}, "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr":
      "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}}})");
  options.warmup_ratio = 0.05;
  const Json json = printed(options);
  EXPECT_EQ(json.at("train_batch_size"), 16);
  EXPECT_EQ(json.at("optimizer").at("params").at("lr"), 1e-4);
  const Json& params = json.at("scheduler").at("params");
  EXPECT_EQ(params.at("warmup_max_lr"), 1e-4);
  EXPECT_EQ(params.at("warmup_num_steps"), 10);
  EXPECT_EQ(params.at("total_num_steps"), 200);
  EXPECT_EQ(params.at("warmup_type"), "log");
}

TEST(StrategyJson, SchedulesOfFlagsAreThereToo) {
  JobOptions options = job_of("zero2");
  options.warmup_steps = 3;
  options.lr_scheduler_kwargs = R"({"num_cycles": 0.25})";
  EXPECT_EQ(printed(options).at("scheduler"),
            Json({{"type", "cosine"},
                  {"params", {{"warmup_num_steps", 3}, {"total_num_steps", 200}, {"num_cycles", 0.25}}}}));
}

TEST(StrategyJson, ItsKeysAreDeepSpeeds) {
  // What is printed can be given to --deepspeed: it means the same run.
  for (const char* preset : {"zero1", "zero2_offload", "zero3_offload"}) {
    Json json = printed(job_of(preset));
    json.erase("scheduler");  // cosine is none of DeepSpeed's
    JobOptions again = job_of(json.dump());
    EXPECT_EQ(strategy_note(again), "") << preset;
    Json second = printed(again);
    second.erase("scheduler");
    json["bf16"]["enabled"] = second["bf16"]["enabled"];
    EXPECT_EQ(second, json) << preset;
  }
}

TEST(StrategyJson, FsdpIsSaidInItsOwnWords) {
  JobOptions options = job_of("");
  options.fsdp = "hybrid_shard offload";
  options.fsdp_config = R"({"dp_replicate": 2})";
  const Json json = printed(options);
  EXPECT_EQ(json.at("fsdp_config"),
            Json({{"reshard_after_forward", true}, {"dp_replicate", 2}, {"cpu_offload", true}}));
}

TEST(StrategyJson, StatesInBf16AreSaid) {
  JobOptions options = job_of("zero2");
  options.optim = "adamw_bf16";
  options.bf16 = true;
  EXPECT_EQ(
      printed(options).at("bf16"),
      Json({{"enabled", true}, {"bf16_master_weights_and_grads", true}, {"bf16_optimizer_states", true}}));
  EXPECT_EQ(printed(options).at("data_types").at("grad_accum_dtype"), "bf16");
}

}  // namespace
}  // namespace apus::train
