#include "apus/train/memory_plan_job.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "apus/base/error.h"
#include "apus/data/survey.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/train/support/plan_models.h"

namespace apus::train {
namespace {

using parallel::Recompute;

/// A folder with a config.json and nothing else.
class MemoryPlanJob : public ::testing::Test {
 protected:
  MemoryPlanJob() { folder_.put("config.json", apus::testing::qwen_14b().dump()); }

  /// The main job's arguments.
  JobOptions main_job() const {
    JobOptions options;
    options.task = "dpo";
    options.model = folder_.path().string();
    options.lora_rank = 64;
    options.lora_alpha = 128;
    options.target_modules = {"q_proj", "v_proj", "k_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
    options.deepspeed = "zero2";
    options.gradient_accumulation_steps = 16;
    options.max_length = 4096;
    options.bf16 = true;
    options.dataloader_num_workers = 8;
    return options;
  }

  PlanContext context(int world, const std::string& card) const {
    PlanContext context{.registry = &registry_, .world = world};
    if (!card.empty()) context.card = find_card(card);
    return context;
  }

  ScratchFolder folder_;
  models::ModelRegistry registry_ = apus::testing::builtin_models();
};

TEST_F(MemoryPlanJob, TheMainJobIsPlannedFromItsConfigAlone) {
  const JobPlan plan = plan_job(main_job(), context(4, "A100-40GB"));
  EXPECT_EQ(plan.input.model.elements() - plan.input.model.trainable_elements(), 14'770'033'664);
  EXPECT_EQ(plan.input.model.trainable_elements(), 275'251'200);
  EXPECT_EQ(plan.input.engine.policy.name, "zero2");
  EXPECT_EQ(plan.input.reference, PlanReference::kSameModel);
  EXPECT_EQ(plan.input.rows.sequences, 2);
  EXPECT_EQ(plan.input.batches_ahead, 16);
  ASSERT_TRUE(plan.time);
  EXPECT_GT(plan.time->total(), 1);
  const std::string text = to_text(plan);
  EXPECT_NE(text.find("zero2 on 4 ranks of A100-40GB"), std::string::npos) << text;
  EXPECT_NE(text.find("frozen weights             28.27 GiB"), std::string::npos) << text;
}

TEST_F(MemoryPlanJob, GradientCheckpointingForcesWhatItSays) {
  JobOptions options = main_job();
  EXPECT_EQ(plan_job(options, context(4, "")).input.engine.recompute, Recompute::kBlock);
  EXPECT_EQ(plan_job(options, context(4, "H200")).input.engine.recompute, Recompute::kNone);
  options.gradient_checkpointing = true;
  EXPECT_EQ(plan_job(options, context(4, "H200")).input.engine.recompute, Recompute::kBlock);
  options.gradient_checkpointing = false;
  EXPECT_EQ(plan_job(options, context(4, "A100-40GB")).input.engine.recompute, Recompute::kNone);
}

TEST_F(MemoryPlanJob, ALimitWithoutACardDecidesTheRecomputeToo) {
  PlanContext limited = context(4, "");
  limited.device_bytes = int64_t{1} << 50;
  const JobPlan plan = plan_job(main_job(), limited);
  EXPECT_EQ(plan.input.engine.recompute, Recompute::kNone);
  EXPECT_FALSE(plan.time);
  EXPECT_NE(to_text(plan).find(": fits"), std::string::npos);
  EXPECT_NE(summary_line(plan).find("recompute none"), std::string::npos);
}

TEST_F(MemoryPlanJob, FlagsReachThePlan) {
  JobOptions options = main_job();
  options.task = "sft";
  options.per_device_train_batch_size = 4;
  options.padding_free = true;
  options.split_dataset_ratio = 0.1;
  options.per_device_eval_batch_size = 3;
  const PlanInput input = plan_job(options, context(2, "")).input;
  EXPECT_EQ(input.reference, PlanReference::kNone);
  EXPECT_EQ(input.rows.sequences, 1);
  EXPECT_TRUE(input.rows.packed);
  EXPECT_EQ(input.micro_batch_rows, 4);
  EXPECT_EQ(input.eval_batch_rows, 3);
  options.target_modules = {"q_proj"};
  EXPECT_LT(plan_job(options, context(2, "")).input.model.trainable_elements(),
            input.model.trainable_elements());
}

TEST_F(MemoryPlanJob, WhatIsFrozenInFullTrainingTakesNoOptimizer) {
  JobOptions options = main_job();
  options.task = "sft";
  options.train_type = "full";
  options.deepspeed = "zero3";
  const PlanInput all = plan_job(options, context(8, "")).input;
  EXPECT_EQ(all.model.trainable_elements(), all.model.elements());
  options.freeze_parameters = {"model.embed_tokens", "model.layers.0."};
  const JobPlan part = plan_job(options, context(8, ""));
  EXPECT_LT(part.input.model.trainable_elements(), all.model.elements() - 152064 * 5120);
  options.freeze_parameters = {"model.layer.0."};
  EXPECT_THROW(plan_job(options, context(8, "")), ConfigError);
}

TEST_F(MemoryPlanJob, PatternsAndWholeModulesOfAnAdapterCount) {
  JobOptions options = main_job();
  const int64_t plain = plan_job(options, context(4, "")).input.model.trainable_elements();
  options.rank_pattern = R"({"down_proj": 8})";
  const int64_t narrower = plan_job(options, context(4, "")).input.model.trainable_elements();
  EXPECT_EQ(plain - narrower, 48 * 56 * (13824 + 5120));
  options.rank_pattern.clear();
  options.modules_to_save = {"lm_head"};
  const int64_t with_head = plan_job(options, context(4, "")).input.model.trainable_elements();
  EXPECT_EQ(with_head - plain, int64_t{152064} * 5120);
}

TEST_F(MemoryPlanJob, FullDpoHoldsASecondModel) {
  JobOptions options = main_job();
  options.train_type = "full";
  const JobPlan plan = plan_job(options, context(8, "H200"));
  EXPECT_EQ(plan.input.reference, PlanReference::kSecondModel);
  EXPECT_EQ(plan.memory.peak().peak[PlanTerm::kReference], 2 * plan.input.model.elements());
  options.precompute_ref_log_probs = true;
  EXPECT_EQ(plan_job(options, context(8, "H200")).input.reference, PlanReference::kCached);
}

TEST_F(MemoryPlanJob, HybridShardIsPlannedByItsCopies) {
  JobOptions options = main_job();
  options.task = "sft";
  options.train_type = "full";
  options.deepspeed.clear();
  options.fsdp = "hybrid_shard";
  options.fsdp_config = R"({"dp_replicate": 2})";
  const JobPlan hybrid = plan_job(options, context(8, "H200"));
  EXPECT_EQ(hybrid.input.engine.policy.name, "hybrid_fsdp");
  EXPECT_EQ(hybrid.input.engine.policy.replicate, 2);
  EXPECT_EQ(to_json(hybrid).at("strategy"), "hybrid_fsdp");
  options.fsdp_config.clear();
  PlanContext hosts = context(8, "H200");
  hosts.cluster.cards_per_host = 4;  // a copy a machine, unless told otherwise
  EXPECT_EQ(plan_job(options, hosts).input.engine.policy.replicate, 2);
  EXPECT_EQ(plan_job(options, context(8, "H200")).input.engine.policy.replicate, 1)
      << "one machine, one copy";

  options.fsdp = "full_shard";
  const auto optimizer = [](const JobPlan& plan) { return plan.memory.peak().peak[PlanTerm::kOptimizer]; };
  const JobPlan over_eight = plan_job(options, context(8, "H200")),
                over_four = plan_job(options, context(4, "H200"));
  EXPECT_NEAR(optimizer(hybrid) / 1e9, optimizer(over_four) / 1e9, 0.001) << "shards of four ranks";
  EXPECT_NEAR(optimizer(hybrid) / 1e9, 2 * optimizer(over_eight) / 1e9, 0.001);
  EXPECT_GE(hybrid.memory.total_bytes(), over_four.memory.total_bytes());
  ASSERT_TRUE(hybrid.time && over_four.time);
  EXPECT_GT(hybrid.time->communication, over_four.time->communication) << "and the sum over the copies";
}

TEST_F(MemoryPlanJob, JsonHasEveryTermAndSumsUp) {
  const JobPlan plan = plan_job(main_job(), context(4, "A100-40GB"));
  const nlohmann::ordered_json json = to_json(plan);
  EXPECT_EQ(json.at("strategy"), "zero2");
  EXPECT_EQ(json.at("card"), "A100-40GB");
  const auto& step = json.at("memory").at("phases").at("step");
  int64_t sum = 0;
  for (const auto& [name, bytes] : step.items()) sum += name == "total" ? 0 : bytes.get<int64_t>();
  EXPECT_EQ(sum, step.at("total").get<int64_t>());
  EXPECT_EQ(json.at("memory").at("total_bytes"), plan.memory.total_bytes());
  EXPECT_GT(json.at("seconds").at("step").get<double>(), 0);
  EXPECT_GT(json.at("seconds").at("host").get<double>(), 0);
  EXPECT_LT(json.at("seconds").at("host").get<double>(), json.at("seconds").at("step").get<double>());
}

TEST_F(MemoryPlanJob, WaysThatFitComeFirstTheFastestOnTop) {
  const JobPlan plan = plan_job(main_job(), context(4, "A100-40GB"));
  const std::vector<RankedPlan> plans = rank_plans(plan);
  ASSERT_GT(plans.size(), 10u);
  EXPECT_TRUE(plans.front().fits);
  for (size_t index = 1; index < plans.size(); ++index) {
    const RankedPlan &better = plans[index - 1], &worse = plans[index];
    EXPECT_GE(better.fits, worse.fits);
    if (better.fits && worse.fits) EXPECT_LE(better.time.total(), worse.time.total());
    EXPECT_EQ(worse.micro_batch_rows * worse.accumulation, 16);
    EXPECT_EQ(worse.fits, worse.memory.fits(plan.card->memory_bytes));
  }
  const std::string text = to_text(plans, plan);
  EXPECT_NE(text.find("ways fit 4 ranks of A100-40GB"), std::string::npos) << text;
  EXPECT_EQ(to_json(plans).size(), plans.size());
  EXPECT_THROW(rank_plans(plan_job(main_job(), context(4, ""))), ConfigError);
}

TEST_F(MemoryPlanJob, NothingFitsACardThatIsTooSmall) {
  JobPlan plan = plan_job(main_job(), context(1, "A10"));
  EXPECT_NE(to_text(plan).find("DOES NOT FIT"), std::string::npos);
  EXPECT_TRUE(rank_plans(plan).front().offloads()) << "where the host takes the weights";
  plan.host_bytes = int64_t{16} << 30;
  const std::vector<RankedPlan> plans = rank_plans(plan);
  EXPECT_FALSE(plans.front().fits);
  EXPECT_LE(plans.front().memory.total_bytes(), plans.back().memory.total_bytes());
  EXPECT_NE(to_text(plans, plan).find("0 of "), std::string::npos);
}

TEST_F(MemoryPlanJob, AFolderWithoutConfigIsNamed) {
  JobOptions options = main_job();
  options.model = "/nowhere/model";
  try {
    plan_job(options, context(1, ""));
    FAIL() << "a plan without a model";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("/nowhere/model/config.json"), std::string::npos)
        << error.what();
  }
}

TEST_F(MemoryPlanJob, RankedFlagsAskForTheStrategy) {
  RankedPlan ranked{
      .policy = parallel::Zero3(), .micro_batch_rows = 2, .accumulation = 8, .recompute = Recompute::kBlock};
  EXPECT_EQ(ranked.flags(),
            "--deepspeed zero3 --per_device_train_batch_size 2 --gradient_accumulation_steps 8 "
            "--gradient_checkpointing true");
  ranked.policy = parallel::Fsdp({.sharding = parallel::FsdpSharding::kShardGradOp});
  EXPECT_TRUE(ranked.flags().starts_with("--fsdp shard_grad_op"));
}

TEST(RowProfiles, ComeFromTheRowsLengths) {
  const std::vector<data::RowLengths> pairs{{.first = 10, .second = 30, .trained = 12},
                                            {.first = 24, .second = 24, .trained = 40}};
  const RowProfile profile = profile_rows(pairs);
  EXPECT_EQ(profile.sequences, 2);
  EXPECT_EQ(profile.longest, 30);
  EXPECT_EQ(profile.longest_row, 48);
  EXPECT_EQ(profile.longest_trained, 40);
  EXPECT_DOUBLE_EQ(profile.mean, 22);
  EXPECT_THROW(profile_rows({}), ConfigError);
}

TEST(HostShare, IsWhatIsFreeWithinTheLimitDividedByTheRanks) {
  const std::string meminfo = "MemTotal: 1000 kB\nMemAvailable:    800 kB\n";
  EXPECT_EQ(parse_host_share(meminfo, "", "", 2, 0), 400 * 1024);
  EXPECT_EQ(parse_host_share(meminfo, "max\n", "5\n", 2, 0), 400 * 1024);
  EXPECT_EQ(parse_host_share(meminfo, "204800\n", "102400\n", 1, 2400), 100'000);
  EXPECT_EQ(parse_host_share(meminfo, "1000\n", "2000\n", 1, 0), 0);
  EXPECT_THROW(parse_host_share("MemTotal: 1 kB", "", "", 1, 0), Error);
  EXPECT_GT(host_share_bytes(1, 0), 0);
}

}  // namespace
}  // namespace apus::train
