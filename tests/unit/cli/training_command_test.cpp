#include "apus/cli/training_command.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apus/base/error.h"

namespace apus::cli {
namespace {

using Words = std::vector<std::string>;

template <typename Kind, typename Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const Kind& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another type: ") + error.what();
  }
  return "accepted";
}

/// A job's options as args.json would hold them.
nlohmann::ordered_json arguments_of(const Words& words) {
  return train::to_json(parse_training_command(words).job);
}

TEST(TrainingCommand, TheDefaultsOfTheTableAreTheJobs) {
  // Numbers and words of the table are compared with the fields that nothing has been bound to.
  const nlohmann::ordered_json job = train::to_json(train::JobOptions{});
  const FlagTable table = training_flags();
  int compared = 0;
  for (const Flag& flag : table.flags()) {
    if (flag.status != FlagStatus::kActs || !job.contains(flag.name) || job.at(flag.name).is_null()) continue;
    const nlohmann::ordered_json& value = job.at(flag.name);
    const FlagValue shown{.shown = flag.name, .words = {flag.default_text}};
    if (says_default(flag, shown)) continue;  // a word for what happens without it
    if (value.is_boolean()) {
      EXPECT_EQ(shown.boolean(), value.get<bool>()) << flag.name;
    } else if (value.is_number()) {
      EXPECT_EQ(shown.number(), value.get<double>()) << flag.name;
    } else {
      continue;
    }
    ++compared;
  }
  EXPECT_GE(compared, 29);
}

TEST(TrainingCommand, Bf16IsAnotherWordForTheDtype) {
  EXPECT_EQ(parse_training_command({"--bf16", "true"}).job.bf16, true);
  EXPECT_EQ(parse_training_command({"--bf16", "false"}).job.bf16, false);
  EXPECT_FALSE(parse_training_command({}).job.bf16.has_value());
}

TEST(TrainingCommand, TheMainJobsFlagsAreTakenUnchanged) {
  const TrainingCommand command =
      parse_training_command({"--model",
                              "DIR",
                              "--dataset",
                              "FILE.jsonl",
                              "--train_type",
                              "lora",
                              "--lora_rank",
                              "64",
                              "--lora_alpha",
                              "128",
                              "--target_modules",
                              "q_proj,v_proj,k_proj,o_proj,gate_proj,up_proj,down_proj",
                              "--output_dir",
                              "OUT",
                              "--deepspeed",
                              "zero2",
                              "--per_device_train_batch_size",
                              "1",
                              "--gradient_accumulation_steps",
                              "16",
                              "--num_train_epochs",
                              "3",
                              "--learning_rate",
                              "5e-5",
                              "--warmup_ratio",
                              "0.03",
                              "--max_length",
                              "4096",
                              "--save_steps",
                              "200",
                              "--logging_steps",
                              "10",
                              "--eval_steps",
                              "200",
                              "--bf16",
                              "true",
                              "--dataloader_num_workers",
                              "8",
                              "--ddp_timeout",
                              "1800",
                              "--report_to",
                              "none",
                              "--use_fast_tokenizer",
                              "true"});
  const train::JobOptions job = train::resolve_job(command.job, 4);
  EXPECT_EQ(job.target_modules.size(), 7u);
  EXPECT_EQ(job.learning_rate, 5e-5);
  EXPECT_EQ(job.max_length, 4096);
  EXPECT_EQ(job.torch_dtype, "bfloat16");
  EXPECT_EQ(job.deepspeed, "zero2");
  EXPECT_EQ(job.gradient_accumulation_steps, 16);
  EXPECT_EQ(command.notes, Words{"Without effect here, meant for Python programs: --use_fast_tokenizer"});
  ASSERT_EQ(command.warnings.size(), 1u);
  EXPECT_EQ(command.warnings[0].find("--eval_steps is given, but neither --val_dataset nor"), 0u);
}

TEST(TrainingCommand, EvalStepsWithDataIsNoWarning) {
  EXPECT_TRUE(parse_training_command({"--eval_steps", "2", "--val_dataset", "v.jsonl"}).warnings.empty());
  EXPECT_TRUE(parse_training_command({"--eval_steps", "2", "--split_dataset_ratio", "0.1"}).warnings.empty());
  EXPECT_TRUE(parse_training_command({}).warnings.empty());
}

TEST(TrainingCommand, WordsOfTheTableMeanTheDefault) {
  const nlohmann::ordered_json before = arguments_of({});
  EXPECT_EQ(
      arguments_of({"--save_total_limit", "none", "--target_modules", "all-linear", "--deepspeed", "none",
                    "--gradient_checkpointing", "auto", "--torch_dtype", "auto", "--adapters", "none"}),
      before);
}

TEST(TrainingCommand, AGivenValueIsBoundThoughItIsTheDefault) {
  const train::JobOptions seeds = parse_training_command({"--seed", "7", "--data_seed", "42"}).job;
  EXPECT_EQ(seeds.seed, 7);
  EXPECT_EQ(seeds.data_seed, 42);
  EXPECT_EQ(
      train::resolve_job(
          parse_training_command({"--model", "m", "--dataset", "d", "--seed", "7", "--data_seed", "42"}).job,
          1)
          .data_seed,
      42);
  EXPECT_FALSE(parse_training_command({"--seed", "7"}).job.data_seed.has_value());
}

TEST(TrainingCommand, DtypesHaveOtherSpellings) {
  EXPECT_EQ(arguments_of({"--torch_dtype", "bf16"}).at("torch_dtype"), "bfloat16");
  EXPECT_EQ(arguments_of({"--torch_dtype", "torch.float32"}).at("torch_dtype"), "float32");
  EXPECT_EQ(arguments_of({"--lora_dtype", "bf16"}).at("lora_dtype"), "bfloat16");
  EXPECT_EQ(arguments_of({"--torch_dtype", "fp16"}).at("torch_dtype"), "float16");
  EXPECT_EQ(refusal<NotSupported>([] {
              parse_training_command({"--reduce_dtype", "fp16"});
            }),
            "--reduce_dtype float16 is not supported: values overflow in it; take bfloat16");
}

TEST(TrainingCommand, ResumeTakesBooleans) {
  EXPECT_EQ(arguments_of({"--resume_from_checkpoint", "true"}).at("resume_from_checkpoint"), "auto");
  EXPECT_EQ(arguments_of({"--resume_from_checkpoint", "False"}).at("resume_from_checkpoint"), "none");
}

TEST(TrainingCommand, PacksHaveNoPadding) {
  const auto parsed = [](const Words& more) {
    Words words = {"--model", "m", "--dataset", "a", "--packing", "true"};
    words.insert(words.end(), more.begin(), more.end());
    return refusal<ConfigError>([&] { parse_training_command(words); });
  };
  EXPECT_EQ(parsed({}), "accepted");
  EXPECT_EQ(parsed({"--padding_free", "true"}), "accepted");
  EXPECT_NE(parsed({"--padding_free", "false"}).find("--packing true and --padding_free false contradict"),
            std::string::npos);
}

TEST(TrainingCommand, TheJobKnowsWhichFlagsWereGiven) {
  const train::JobOptions job =
      parse_training_command({"--lora_rank", "8", "--save_total_limit", "none", "--use_hf", "true",
                              "--gradient_clipping", "1.0", "--adapters", "a"})
          .job;
  EXPECT_EQ(job.given, (std::set<std::string>{"adapters", "lora_rank", "max_grad_norm"}));
  EXPECT_EQ(job.task, "dpo");
}

TEST(TrainingCommand, AScheduleOrADtypeWrittenAtItsDefaultIsGiven) {
  const train::JobOptions job =
      parse_training_command({"--lr_scheduler_type", "cosine", "--grad_accum_dtype", "fp32", "--optim",
                              "adamw", "--lr_scheduler_kwargs", "none"})
          .job;
  EXPECT_EQ(job.given, (std::set<std::string>{"grad_accum_dtype", "lr_scheduler_type", "optim"}));
}

TEST(TrainingCommand, CommandsNameTheirTask) {
  EXPECT_EQ(task_of_command("dpo"), "dpo");
  EXPECT_EQ(task_of_command("rlhf"), "dpo");
  EXPECT_EQ(task_of_command("sft"), "sft");
  EXPECT_EQ(task_of_command("pt"), "pt");
  EXPECT_EQ(task_of_command("train"), "");
}

TEST(TrainingCommand, WhatTheTaskOrTheTrainTypeHasNoUseForIsRefused) {
  const auto parsed = [](const Words& words, const std::string& task) {
    return refusal<ConfigError>([&] { parse_training_command(words, task); });
  };
  EXPECT_EQ(parsed({"--beta", "0.2"}, "sft"),
            "--beta 0.2 is for apus dpo, and this trains sft, which has no use for it; leave it out");
  EXPECT_EQ(parsed({"--beta", "0.1", "--loss_scale", "default", "--ref_model", "none"}, "pt"), "accepted")
      << "what happens anyway may be said";
  EXPECT_EQ(parsed({"--lora_rank", "16", "--train_type", "full"}, "sft"),
            "--lora_rank 16 is for --train_type lora, and this is --train_type full, which has no use for "
            "it; leave it "
            "out");
  EXPECT_EQ(parsed({"--freeze_parameters", "model.embed"}, "sft")
                .find("--freeze_parameters model.embed is for "
                      "--train_type full"),
            0u);
  EXPECT_EQ(parsed({"--disable_dropout", "true", "--train_type", "full"}, "dpo"), "accepted");
}

TEST(CheckWorld, DeviceMapNeedsRanks) {
  const TrainingCommand command = parse_training_command({"--device_map", "auto"});
  EXPECT_EQ(refusal<ConfigError>([&] { check_world(command, 1); }).find("--device_map auto"), 0u);
  check_world(command, 2);
  EXPECT_EQ(command.notes, Words{"Without effect: --device_map; each rank has one device"});
}

}  // namespace
}  // namespace apus::cli
