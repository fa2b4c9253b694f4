#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/train/job.h"
#include "apus/train/job_settings.h"

namespace apus::train {
namespace {

JobOptions valid() {
  JobOptions options;
  options.model = "/models/Qwen2.5-14B-Instruct/";
  options.dataset = {"train.jsonl"};
  return options;
}

std::string error_of(const std::function<void(JobOptions&)>& change) {
  JobOptions options = valid();
  change(options);
  try {
    resolve_job(options, 4);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(JobOptions, AccumulationMakesAtLeastSixteenRowsAStep) {
  EXPECT_EQ(resolve_job(valid(), 1).gradient_accumulation_steps, 16);
  EXPECT_EQ(resolve_job(valid(), 4).gradient_accumulation_steps, 4);
  EXPECT_EQ(resolve_job(valid(), 3).gradient_accumulation_steps, 6);
  EXPECT_EQ(resolve_job(valid(), 64).gradient_accumulation_steps, 1);
}

TEST(JobOptions, DependentValuesAreFilledIn) {
  const JobOptions options = resolve_job(valid(), 4);
  EXPECT_EQ(options.eval_steps, options.save_steps);
  EXPECT_EQ(options.data_seed, 42);
  JobOptions seeded = valid();
  seeded.seed = 7;
  EXPECT_EQ(resolve_job(seeded, 4).data_seed, 42) << "the order of rows has a seed of its own";
  EXPECT_EQ(options.output_dir, "output/Qwen2.5-14B-Instruct");
}

TEST(JobOptions, Bf16DecidesTheDtypeAndMustNotContradictIt) {
  JobOptions options = valid();
  options.bf16 = true;
  EXPECT_EQ(resolve_job(options, 1).torch_dtype, "bfloat16");
  options.bf16 = false;
  EXPECT_EQ(resolve_job(options, 1).torch_dtype, "float32");
  options.torch_dtype = "float16";
  EXPECT_EQ(resolve_job(options, 1).torch_dtype, "float16") << "--bf16 false does not speak against it";
  options.torch_dtype = "bfloat16";
  EXPECT_THROW(resolve_job(options, 1), ConfigError);
  EXPECT_NE(error_of([](auto& o) {
              o.fp16 = true;
              o.torch_dtype = "float32";
            }).find("--fp16 true and --torch_dtype float32 contradict each other: leave one of them out"),
            std::string::npos);
}

TEST(JobOptions, ErrorsNameTheFlag) {
  const std::vector<std::pair<std::string, std::function<void(JobOptions&)>>> faults = {
      {"--model", [](auto& o) { o.model.clear(); }},
      {"--dataset", [](auto& o) { o.dataset.clear(); }},
      {"--lora_rank", [](auto& o) { o.lora_rank = 0; }},
      {"--per_device_train_batch_size", [](auto& o) { o.per_device_train_batch_size = 0; }},
      {"--gradient_accumulation_steps", [](auto& o) { o.gradient_accumulation_steps = -1; }},
      {"--max_length", [](auto& o) { o.max_length = 0; }},
      {"--learning_rate", [](auto& o) { o.learning_rate = -1; }},
      {"--adam_beta1", [](auto& o) { o.adam_beta1 = 1.0; }},
      {"--beta", [](auto& o) { o.beta = 0; }},
      {"--lora_dropout", [](auto& o) { o.lora_dropout = 1.0; }},
      {"--split_dataset_ratio", [](auto& o) { o.split_dataset_ratio = 1.0; }},
      {"--truncation_strategy", [](auto& o) { o.truncation_strategy = "middle"; }},
      {"--lr_scheduler_type", [](auto& o) { o.lr_scheduler_type = "cosin"; }},
      {"--deepspeed zero5", [](auto& o) { o.deepspeed = "zero5"; }},
      {"--ref_adapters", [](auto& o) { o.ref_adapters = "none"; }},
      {"--val_dataset",
       [](auto& o) {
         o.val_dataset = {"v"};
         o.split_dataset_ratio = 0.1;
       }},
      {"--target_regex",
       [](auto& o) {
         o.target_modules = {"q_proj"};
         o.target_regex = ".*";
       }},
      {"--num_train_epochs", [](auto& o) { o.num_train_epochs = 0; }},
      {"--num_train_epochs", [](auto& o) { o.num_train_epochs = 1e300; }},
      {"--warmup_ratio", [](auto& o) { o.warmup_ratio = 2; }},
      {"--eval_steps", [](auto& o) { o.eval_steps = -1; }},
      {"--lr_scheduler_kwargs", [](auto& o) { o.lr_scheduler_kwargs = "{"; }},
      {"--target_regex", [](auto& o) { o.target_regex = "("; }},
      {"--per_device_train_batch_size", [](auto& o) { o.per_device_train_batch_size = int64_t{1} << 62; }},
  };
  for (const auto& [flag, change] : faults) {
    EXPECT_NE(error_of(change).find(flag), std::string::npos) << flag << ": " << error_of(change);
  }
  EXPECT_EQ(error_of([](auto&) {}), "");
}

TEST(JobOptions, AFlagIsNamedOnceAndTheNearestWordIsOffered) {
  EXPECT_EQ(error_of([](auto& o) { o.warmup_ratio = 2; }), "--warmup_ratio is 2, expected 0 to 1");
  const std::string kwargs = error_of([](auto& o) { o.lr_scheduler_type = "cosine_with_min_lr"; });
  EXPECT_EQ(kwargs.find("--lr_scheduler_kwargs: cosine_with_min_lr takes exactly one of"), 0u) << kwargs;
  const std::string type = error_of([](auto& o) { o.lr_scheduler_type = "cosin"; });
  EXPECT_TRUE(type.ends_with(" (did you mean 'cosine'?)")) << type;
}

TEST(JobOptions, TheRecordHoldsEveryResolvedFlag) {
  const nlohmann::ordered_json json = to_json(resolve_job(valid(), 4));
  EXPECT_EQ(json.at("gradient_accumulation_steps"), 4);
  EXPECT_EQ(json.at("target_modules"), nlohmann::ordered_json({"all-linear"}));
  EXPECT_TRUE(json.at("save_total_limit").is_null());
  EXPECT_GT(json.size(), 100u);
}

TEST(JobOptions, TheStrategyListsOnlyKeysThatAct) {
  JobOptions options = valid();
  options.deepspeed = "zero2";
  const auto zero2 = strategy_json(resolve_job(options, 4), {.world = 4, .local_world = 4}, 100);
  EXPECT_EQ(zero2.at("train_batch_size"), 16);
  EXPECT_EQ(zero2.at("zero_optimization").at("stage"), 2);
  EXPECT_EQ(zero2.at("zero_optimization").at("allgather_bucket_size"), 200'000'000);
  options.deepspeed = "";
  EXPECT_FALSE(strategy_json(resolve_job(options, 4), {.world = 4, .local_world = 4}, 100)
                   .at("zero_optimization")
                   .contains("allgather_bucket_size"));
}

TEST(JobOptions, WhatATaskHasNoUseForIsRefused) {
  const std::vector<std::pair<std::string, std::function<void(JobOptions&)>>> faults = {
      {"--beta is for dpo",
       [](auto& o) {
         o.task = "sft";
         o.given = {"beta"};
       }},
      {"--lora_rank is for adapters",
       [](auto& o) {
         o.train_type = "full";
         o.given = {"lora_rank"};
       }},
      {"--adapters",
       [](auto& o) {
         o.train_type = "full";
         o.adapters = "a";
       }},
      {"--merge_lora true needs",
       [](auto& o) {
         o.train_type = "full";
         o.merge_lora = true;
       }},
      {"--freeze_parameters", [](auto& o) { o.freeze_parameters = {"model.embed"}; }},
      {"--loss_scale all is for sft", [](auto& o) { o.loss_scale = "all"; }},
      {"--use_chat_template false",
       [](auto& o) {
         o.task = "sft";
         o.use_chat_template = false;
       }},
      {"--use_chat_template true",
       [](auto& o) {
         o.task = "pt";
         o.use_chat_template = true;
       }},
      {"--disable_dropout true",
       [](auto& o) {
         o.task = "sft";
         o.disable_dropout = true;
       }},
      {"exclude each other",
       [](auto& o) {
         o.ref_model = "m";
         o.reference_free = true;
       }},
      {"has nothing to compute", [](auto& o) { o.precompute_ref_log_probs = o.reference_free = true; }},
      {"on the row's micro-batch", [](auto& o) { o.precompute_ref_log_probs = o.rope_batch_length = true; }},
      {"--load_best_model_at_end true needs", [](auto& o) { o.load_best_model_at_end = true; }},
      {"--early_stop_interval needs", [](auto& o) { o.early_stop_interval = 2; }},
      {"--resume_only_model true needs", [](auto& o) { o.resume_only_model = true; }},
      {"--report_to none",
       [](auto& o) {
         o.report_to = {"none", "tensorboard"};
       }},
      {"--deepspeed zero2 and --fsdp",
       [](auto& o) {
         o.deepspeed = "zero2";
         o.fsdp = "full_shard";
       }},
      {"--fsdp_config needs --fsdp", [](auto& o) { o.fsdp_config = "{}"; }},
      {"the word full_shar", [](auto& o) { o.fsdp = "full_shar"; }},
      {"nobody knows the key shard",
       [](auto& o) {
         o.fsdp = "full_shard";
         o.fsdp_config = R"({"shard": 1})";
       }},
      {"offload needs shards", [](auto& o) { o.fsdp = "no_shard offload"; }},
      {"--rank_pattern", [](auto& o) { o.rank_pattern = R"({"q_proj": 1.5})"; }},
      {"--alpha_pattern", [](auto& o) { o.alpha_pattern = "[1]"; }},
      {"--base_dtype bfloat16",
       [](auto& o) {
         o.base_dtype = "bfloat16";
         o.torch_dtype = "float32";
       }},
      {"--base_dtype bfloat16",
       [](auto& o) {
         o.base_dtype = "bfloat16";
         o.bf16 = false;
       }},
      {"--rlhf_type kto", [](auto& o) { o.rlhf_type = "kto"; }},
      {"--loss_type: unknown", [](auto& o) { o.loss_type = {"sigmoyd"}; }},
  };
  for (const auto& [message, change] : faults) {
    EXPECT_NE(error_of(change).find(message), std::string::npos) << message << ": " << error_of(change);
  }
}

TEST(JobOptions, DefaultsFollowTaskAndTrainType) {
  JobOptions options = valid();
  EXPECT_EQ(resolve_job(options, 1).task, "dpo");
  EXPECT_EQ(resolve_job(options, 1).learning_rate, 1e-4);
  EXPECT_EQ(resolve_job(options, 1).disable_dropout, true);
  EXPECT_EQ(resolve_job(options, 1).use_chat_template, true);
  options.train_type = "full";
  options.task = "pt";
  EXPECT_EQ(resolve_job(options, 1).learning_rate, 1e-5);
  EXPECT_EQ(resolve_job(options, 1).disable_dropout, false);
  EXPECT_EQ(resolve_job(options, 1).use_chat_template, false);
  options.base_dtype = "bfloat16";
  EXPECT_EQ(resolve_job(options, 1).torch_dtype, "bfloat16");
}

}  // namespace
}  // namespace apus::train
