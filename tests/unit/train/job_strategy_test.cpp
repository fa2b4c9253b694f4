#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/train/job_settings.h"

namespace apus::train {
namespace {

parallel::ShardPolicy fsdp(const std::string& words, const std::string& config = "",
                           const RankLayout& ranks = {}) {
  JobOptions options;
  options.fsdp = words;
  options.fsdp_config = config;
  return shard_policy(options, ranks);
}

TEST(JobStrategy, PresetsAreTheStagesOfZero) {
  JobOptions options;
  EXPECT_FALSE(shard_policy(options).opt_shard);
  options.deepspeed = "zero1";
  EXPECT_TRUE(shard_policy(options).opt_shard && !shard_policy(options).grad_shard);
  options.deepspeed = "zero2";
  EXPECT_TRUE(shard_policy(options).grad_shard && !shard_policy(options).param_shard);
  options.deepspeed = "zero3";
  EXPECT_TRUE(shard_policy(options).param_shard);
}

TEST(JobStrategy, FsdpTakesItsWords) {
  EXPECT_EQ(std::get<bool>(fsdp("full_shard auto_wrap").reshard_after_forward), true);
  EXPECT_EQ(std::get<bool>(fsdp("fsdp2").reshard_after_forward), true);
  EXPECT_EQ(std::get<bool>(fsdp("shard_grad_op,auto_wrap").reshard_after_forward), false);
  EXPECT_EQ(std::get<bool>(fsdp("fsdp2", R"({"fsdp_reshard_after_forward": false})").reshard_after_forward),
            false);
  EXPECT_THROW(fsdp("auto_wrap"), ConfigError);
  EXPECT_THROW(fsdp("full_shard shard_grad_op"), ConfigError);
}

TEST(JobStrategy, HybridShardKeepsACopyOnEachMachine) {
  EXPECT_EQ(fsdp("hybrid_shard", "", {.world = 8, .local_world = 4}).replicate, 2);
  EXPECT_EQ(fsdp("hybrid_shard", "", {.world = 4, .local_world = 4}).replicate, 1);
  EXPECT_EQ(fsdp("hybrid_shard", R"({"dp_replicate": 4})", {.world = 8, .local_world = 8}).replicate, 4);
}

std::string engine_refusal(const JobOptions& options, int world) {
  try {
    engine_options(options, {.world = world, .local_world = world});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(JobStrategy, CopiesThatDoNotDivideTheRanksAreNamedByTheirFlag) {
  JobOptions options;
  options.fsdp = "hybrid_shard";
  options.fsdp_config = R"({"dp_replicate": 2})";
  EXPECT_EQ(engine_refusal(options, 3)
                .find("--fsdp_config: dp_replicate 2 keeps 2 copies of the model, which "
                      "do not divide the 3 ranks"),
            0u)
      << engine_refusal(options, 3);
  EXPECT_EQ(engine_refusal(options, 4), "accepted");
  options.fsdp_config = R"({"dp_replicate": 0})";
  EXPECT_EQ(engine_refusal(options, 4), "--fsdp_config: dp_replicate is 0, expected 1 or more");
  options.fsdp_config = "{";
  EXPECT_EQ(engine_refusal(options, 4).find("--fsdp_config: "), 0u);
  options.fsdp_config = "/no/such.json";
  EXPECT_EQ(engine_refusal(options, 4).find("--fsdp_config: cannot open /no/such.json"), 0u);
}

TEST(JobStrategy, AStageThatDoesNotExistIsNotPromised) {
  JobOptions options;
  options.deepspeed = "zero4";
  EXPECT_EQ(engine_refusal(options, 1),
            "--deepspeed zero4: no such stage; one of zero0, zero1, zero2, zero2_offload, zero3, "
            "zero3_offload, or a JSON file");
  options.deepspeed = "zreo2";
  EXPECT_EQ(engine_refusal(options, 1),
            "--deepspeed zreo2: no such preset; one of zero0, zero1, zero2, zero2_offload, zero3, "
            "zero3_offload, or a JSON file (did you mean 'zero2'?)");
  options.deepspeed = "no/such.json";
  EXPECT_EQ(engine_refusal(options, 1).find("--deepspeed: cannot open no/such.json"), 0u)
      << engine_refusal(options, 1);
}

TEST(JobStrategy, KeysWithoutMeaningAreNamedOnce) {
  JobOptions options;
  EXPECT_EQ(strategy_note(options), "");
  options.deepspeed =
      R"({"steps_per_print": 10, "zero_optimization": {"stage": 2}, "memory_breakdown": true})";
  EXPECT_EQ(strategy_note(options), "Without effect in --deepspeed: memory_breakdown, steps_per_print");
  options.deepspeed = "";
  options.fsdp = "full_shard";
  options.fsdp_config =
      R"({"fsdp_use_orig_params": true, "backward_prefetch": "BACKWARD_PRE", "version": 2})";
  EXPECT_EQ(strategy_note(options), "Without effect in --fsdp_config: backward_prefetch, use_orig_params");
}

TEST(JobStrategy, ASecondaryPartitionDividesTheRanks) {
  JobOptions options;
  options.deepspeed = R"({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 2}})";
  EXPECT_EQ(engine_refusal(options, 4), "accepted");
  EXPECT_EQ(engine_options(options, {.world = 4}).policy.backward_ranks(4), 2);
  EXPECT_NE(engine_refusal(options, 3).find("zero_hpz_partition_size 2 does not divide the 3 ranks"),
            std::string::npos);
}

TEST(JobStrategy, TheLayerClassIsChecked) {
  JobOptions options;
  options.fsdp = "full_shard auto_wrap";
  options.fsdp_transformer_layer_cls = "Qwen2DecoderLayer";
  EXPECT_NO_THROW(check_layer_class(options, "qwen2"));
  EXPECT_THROW(check_layer_class(options, "llama"), ConfigError);
  options.fsdp_transformer_layer_cls = "";
  options.fsdp_config = R"({"transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]})";
  EXPECT_NO_THROW(check_layer_class(options, "llama"));
  EXPECT_THROW(check_layer_class(options, "qwen2"), ConfigError);
}

}  // namespace
}  // namespace apus::train
