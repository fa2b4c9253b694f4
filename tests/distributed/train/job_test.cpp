#include "apus/train/job.h"

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/base/safetensors.h"
#include "apus/models/pretrained.h"
#include "apus/train/run_directory.h"
#include "tests/support/job_case.h"

namespace apus::testing {
namespace {

class EveryJob : public ::testing::TestWithParam<JobKind> {
 protected:
  JobBench bench_;
};

TEST_P(EveryJob, LowersItsLossAndResumesToTheSameBits) {
  const auto whole = run_job(1, bench_.options(GetParam(), "whole"));
  ASSERT_TRUE(whole.finished);
  const std::vector<double> losses = losses_of(whole.run_dir);
  ASSERT_EQ(losses.size(), 6u);
  EXPECT_LT(losses.back(), losses.front() - 1e-3);

  const auto first = run_job(1, bench_.options(GetParam(), "cut"));
  kill_after(first.run_dir, 3);
  const auto second = run_job(1, bench_.options(GetParam(), "cut"));
  EXPECT_EQ(second.run_dir, first.run_dir);
  EXPECT_EQ(losses_of(second.run_dir), losses);
  EXPECT_EQ(sha256_file(weights_of(second.last_checkpoint)), sha256_file(weights_of(whole.last_checkpoint)));
}

INSTANTIATE_TEST_SUITE_P(Tasks, EveryJob, ::testing::ValuesIn(all_job_kinds()),
                         [](const auto& info) { return name_of(info.param); });

class Job : public ::testing::Test {
 protected:
  template <typename Kind>
  std::string refusal(const train::JobOptions& options) {
    try {
      run_job(1, options, logger_);
    } catch (const Kind& error) {
      return error.what();
    }
    return "accepted";
  }

  JobBench bench_;
  std::shared_ptr<CaptureLogger> logger_ = std::make_shared<CaptureLogger>();
};

TEST_F(Job, StatesInBf16ResumeToTheSameBits) {
  const auto options = [this](const std::string& output) {
    auto job = bench_.options({"sft", "full"}, output);
    job.torch_dtype = "bfloat16";
    job.optim = "adamw_bf16";
    job.deepspeed = "zero2";
    job.gradient_accumulation_steps = 2;
    return job;
  };
  const auto whole = run_job(2, options("whole")), first = run_job(2, options("cut"));
  kill_after(first.run_dir, 3);
  const auto second = run_job(2, options("cut"));
  EXPECT_EQ(second.run_dir, first.run_dir);
  EXPECT_EQ(losses_of(second.run_dir), losses_of(whole.run_dir));
  EXPECT_LT(losses_of(whole.run_dir).back(), losses_of(whole.run_dir).front());
  EXPECT_EQ(sha256_file(weights_of(second.last_checkpoint)), sha256_file(weights_of(whole.last_checkpoint)));
  auto wide = options("wide");
  wide.torch_dtype = "float32";
  EXPECT_NE(refusal<ConfigError>(wide).find("--optim adamw_bf16"), std::string::npos);
}

TEST_F(Job, AFullCheckpointIsAModelOfItsOwn) {
  const auto summary = run_job(1, bench_.options({"sft", "full"}), logger_);
  for (const char* file : {"config.json", "tokenizer.json", "model.safetensors", "args.json"}) {
    EXPECT_TRUE(fs::exists(summary.last_checkpoint / file)) << file;
  }
  models::ModelRegistry registry;
  models::register_builtin_models(registry);
  const auto loaded = models::load_pretrained(summary.last_checkpoint, registry);
  const auto base = models::load_pretrained(bench_.model(), registry);
  const auto after = loaded.model->named_parameters(), before = base.model->named_parameters();
  ASSERT_EQ(after.size(), before.size());
  EXPECT_FALSE(after.front().tensor.equal(before.front().tensor)) << "the embedding was trained";
  EXPECT_TRUE(logger_->contains("the whole model"));
  ASSERT_TRUE(summary.report);
  EXPECT_EQ(summary.report->next, train::load_hint(summary.last_checkpoint.string()));
}

TEST_F(Job, TheReportAccountsForEveryRowAndNamesTheNextCommand) {
  auto options = bench_.options({"dpo", "lora"});
  const std::string bad = read_file(options.dataset[0]) + "{\"prompt\": \"\"}\n";
  options.dataset = {bench_.put("bad.jsonl", bad).string()};
  options.split_dataset_ratio = 0.25;
  const auto summary = run_job(1, options, logger_);
  ASSERT_TRUE(summary.report);
  ASSERT_EQ(summary.report->rows.size(), 1u);
  const auto& rows = summary.report->rows[0];
  EXPECT_TRUE(train::rows_add_up(rows));
  EXPECT_EQ(rows.input, 9);
  EXPECT_EQ(rows.held_out, 2);
  EXPECT_EQ(rows.whole, 6);
  EXPECT_EQ(summary.report->next, "apus merge --adapters " + summary.last_checkpoint.string());
  EXPECT_TRUE(logger_->contains(summary.report->next));
  EXPECT_TRUE(summary.report->first_loss && summary.report->last_evaluation);
}

TEST_F(Job, SaysAtItsStartWhatItDoes) {
  run_job(1, bench_.options({"dpo", "lora"}), logger_);
  for (const char* line : {"world_size=1, rank=0, local_rank=0", "Using deepspeed config: {",
                           "Trainable parameters: ", "Reference: ", "[-100 * ", "Output: "}) {
    EXPECT_TRUE(logger_->contains(line)) << line;
  }
}

TEST_F(Job, MergesAtItsEndIfAsked) {
  auto options = bench_.options({"sft", "lora"});
  options.merge_lora = true;
  options.rope_scaling = "linear";  // which the merge has to say something about
  options.max_model_len = 256;
  const auto summary = run_job(1, options, logger_);
  const fs::path merged = summary.run_dir / "merges";
  EXPECT_TRUE(fs::exists(merged / "model.safetensors"));
  EXPECT_TRUE(fs::exists(fs::path(options.output_dir) / "merges/config.json")) << "the link";
  EXPECT_TRUE(logger_->contains("Note: config.json has the rotary scaling"));
  EXPECT_EQ(summary.report->next, train::load_hint(merged.string()));
  const auto& places = summary.report->places;
  EXPECT_NE(std::ranges::find(places, std::pair<std::string, std::string>("merged model", merged.string())),
            places.end());
  const auto again = run_job(1, options);
  EXPECT_TRUE(again.was_complete);
  EXPECT_EQ(again.report->next, summary.report->next);
}

TEST_F(Job, EndsWithTheBestCheckpointIfAsked) {
  auto options = bench_.options({"sft", "full"});
  // At this rate other texts become likelier for two steps, and less likely after that.
  options.learning_rate = 0.05;
  options.val_dataset = {bench_.put("other.jsonl", "{\"text\": \"0 1 2 3 x y z 1024 why not\"}\n").string()};
  options.lr_scheduler_type = "constant";
  options.eval_steps = 1;
  options.load_best_model_at_end = true;
  options.save_total_limit = 1;
  const auto summary = run_job(1, options, logger_);
  ASSERT_TRUE(summary.report && summary.report->best);
  const std::string best = detail::concat("checkpoint-", summary.report->best->step);
  EXPECT_LT(summary.report->best->step, 6);
  EXPECT_EQ(summary.last_checkpoint.filename(), best);
  EXPECT_EQ(fs::read_symlink(summary.run_dir / "last"), best);
  EXPECT_TRUE(logger_->contains("The best checkpoint is the result"));
}

TEST_F(Job, TakesTheWeightsAloneIfAsked) {
  for (const char* type : {"lora", "full"}) {
    const auto first = run_job(1, bench_.options({"sft", type}, "first"));
    auto options = bench_.options({"sft", type}, "second");
    options.resume_from_checkpoint = first.last_checkpoint.string();
    options.resume_only_model = true;
    options.lora_rank = train::JobOptions().lora_rank;  // the checkpoint's own stands
    options.warmup_steps = 3;                           // the first step has rate 0
    const auto second = run_job(1, options);
    EXPECT_EQ(losses_of(second.run_dir).size(), 6u) << "from step 0 on";
    EXPECT_LT(losses_of(second.run_dir).front(), losses_of(first.run_dir).front()) << type;
  }
}

TEST_F(Job, SaysWhatDiffersFromTheRunOfANamedCheckpoint) {
  const auto first = run_job(1, bench_.options({"sft", "lora"}, "first"));
  auto options = bench_.options({"sft", "lora"}, "second");
  options.dataset = {
      bench_.put("other.jsonl", read_file(options.dataset[0]) + "{\"text\": \"one more\"}\n").string()};
  options.resume_from_checkpoint = (first.run_dir / "checkpoint-3").string();
  run_job(1, options, logger_);
  EXPECT_TRUE(logger_->contains("--resume_from_checkpoint was made with another data: "));
  EXPECT_TRUE(logger_->contains("at step 3"));
}

TEST_F(Job, RefusesAnAdapterOfAnotherBase) {
  const auto first = run_job(1, bench_.options({"sft", "lora"}, "first"));
  const fs::path other = bench_.path("other");
  fs::copy(bench_.model(), other);
  std::string bytes = read_file(other / "model.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file_atomic(other / "model.safetensors", bytes);
  auto options = bench_.options({"sft", "lora"}, "second");
  options.model = other.string();
  options.adapters = first.last_checkpoint.string();
  EXPECT_NE(refusal<ConfigError>(options).find("differ from those of --model"), std::string::npos);
}

TEST_F(Job, ChecksTheOutputFolderBeforeItReadsAnything) {
  auto options = bench_.options({"sft", "lora"});
  options.dataset = {"/absent.jsonl"};
  options.output_dir = (bench_.put("file", "x") / "out").string();
  const std::string message = refusal<ConfigError>(options);
  EXPECT_NE(message.find("out"), std::string::npos) << message;
}

/// Files of a folder and below; 0 also where it is not there.
int64_t entries_below(const fs::path& folder) {
  std::error_code absent;
  const fs::recursive_directory_iterator files(folder, absent);
  return absent ? 0 : std::distance(fs::begin(files), fs::end(files));
}

TEST_F(Job, ARunOfWhichNothingCameLeavesNoFolder) {
  auto options = bench_.options({"sft", "lora"}, "new/out");
  options.report_to = {"tensorboard"};
  options.logging_steps = 5;
  options.metric_for_best_model = "foo";
  EXPECT_NE(refusal<ConfigError>(options).find("metric_for_best_model eval_foo"), std::string::npos);
  EXPECT_FALSE(fs::exists(bench_.path("new"))) << "the folders around it, too";
  EXPECT_FALSE(logger_->contains("Output: ")) << "looked at before the folder is made";

  options.metric_for_best_model = "eval_loss";
  options.learning_rate = 1e30;
  options.max_grad_norm = 0;
  options.lr_scheduler_type = "constant";
  options.warmup_steps = 0;
  const auto diverged = refusal<Error>(options);
  EXPECT_NE(diverged.find("training has diverged"), std::string::npos) << diverged;
  EXPECT_FALSE(fs::exists(bench_.path("new"))) << "nothing was logged or saved";
  options.logging_steps = 1;
  refusal<Error>(options);
  EXPECT_TRUE(fs::exists(bench_.path("new"))) << "what was logged stays";
}

TEST_F(Job, AFolderThatWasThereStays) {
  auto options = bench_.options({"sft", "lora"});
  fs::create_directories(options.output_dir);
  options.add_version = false;
  options.metric_for_best_model = "foo";
  EXPECT_NE(refusal<ConfigError>(options).find("metric_for_best_model eval_foo"), std::string::npos);
  EXPECT_TRUE(fs::exists(options.output_dir));
  EXPECT_EQ(entries_below(options.output_dir), 0);
  options.metric_for_best_model = "eval_loss";
  EXPECT_TRUE(run_job(1, options).finished);
  options.metric_for_best_model = "foo";
  options.overwrite = true;
  const int64_t before = entries_below(options.output_dir);
  EXPECT_NE(refusal<ConfigError>(options).find("metric_for_best_model eval_foo"), std::string::npos);
  EXPECT_EQ(entries_below(options.output_dir), before) << "the earlier run is overwritten by no run";
}

TEST_F(Job, ADiskWithoutRoomForACheckpointIsSaidBeforeTheFirstStep) {
  for (const char* type : {"lora", "full"}) {
    int64_t steps = 0;
    const auto start = [&](int64_t free) {
      run_ranks(1, [&](std::shared_ptr<comm::Communicator> dp) {
        SystemClock clock;
        train::run_job(bench_.options({"sft", type}, type),
                       {.world = dp,
                        .logger = logger_,
                        .clock = &clock,
                        .on_step = [&](const train::JobProgress&) { ++steps; },
                        .free_space = [free](const fs::path&) { return free; }});
      });
    };
    try {
      start(1000);
      ADD_FAILURE() << "trained without room";
    } catch (const CheckpointError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("a checkpoint needs "), std::string::npos) << text;
      EXPECT_NE(text.find("make room"), std::string::npos) << text;
    }
    EXPECT_EQ(steps, 0);
    EXPECT_FALSE(fs::exists(bench_.path(type)));
    start(int64_t{1} << 40);
    EXPECT_EQ(steps, 6);
  }
}

TEST_F(Job, OnlyAnothersFinishedCheckpointLeavesNothingToTrain) {
  const auto first = run_job(1, bench_.options({"sft", "lora"}, "first"));
  fs::remove(first.run_dir / "run.json");  // as if it had been killed at its very end
  const auto second = run_job(1, bench_.options({"sft", "lora"}, "first"), logger_);
  EXPECT_TRUE(second.finished);
  EXPECT_EQ(second.run_dir, first.run_dir);
  EXPECT_FALSE(logger_->contains("nothing was left to train"));
  auto options = bench_.options({"sft", "lora"}, "third");
  options.resume_from_checkpoint = first.last_checkpoint.string();
  run_job(1, options, logger_);
  EXPECT_TRUE(logger_->contains("nothing was left to train"));
}

TEST_F(Job, ArgsNameTheModelsFolderInFull) {
  auto options = bench_.options({"sft", "lora"});
  options.model = fs::relative(options.model).string();
  options.max_steps = 1;
  const auto summary = run_job(1, options);
  const auto args = nlohmann::json::parse(read_file(summary.last_checkpoint / "args.json"));
  EXPECT_EQ(args.at("model"), options.model);
  EXPECT_TRUE(fs::path(args.at("model_folder").get<std::string>()).is_absolute());
  EXPECT_TRUE(fs::equivalent(args.at("model_folder").get<std::string>(), options.model));
}

TEST_F(Job, PairsAreNoTextsAndTheOtherWayRound) {
  auto options = bench_.options({"sft", "lora"});
  options.dataset = bench_.options({"dpo", "lora"}).dataset;
  EXPECT_NE(refusal<ConfigError>(options).find("holds preference pairs"), std::string::npos);
}

TEST_F(Job, WritesEventsForTensorBoardUnlessToldNotTo) {
  auto options = bench_.options({"sft", "lora"}, "with");
  options.report_to = {"tensorboard"};
  EXPECT_TRUE(fs::exists(run_job(1, options).run_dir / "runs"));
  EXPECT_FALSE(fs::exists(run_job(1, bench_.options({"sft", "lora"}, "without")).run_dir / "runs"));
}

TEST_F(Job, AReferenceComputedAheadGivesTheSameRun) {
  const auto online = run_job(1, bench_.options({"dpo", "full"}, "online"));
  auto options = bench_.options({"dpo", "full"}, "ahead");
  options.precompute_ref_log_probs = true;
  const auto ahead = run_job(1, options, logger_);
  const std::vector<double> a = losses_of(online.run_dir), b = losses_of(ahead.run_dir);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5);
}

TEST_F(Job, TellsTheHostOfEveryStep) {
  std::vector<int64_t> steps;
  run_ranks(1, [&](std::shared_ptr<comm::Communicator> dp) {
    SystemClock clock;
    train::run_job(bench_.options({"sft", "lora"}), {.world = dp,
                                                     .logger = logger_,
                                                     .clock = &clock,
                                                     .on_step =
                                                         [&](const train::JobProgress& step) {
                                                           EXPECT_EQ(step.max_steps, 6);
                                                           EXPECT_GT(step.tokens, 0);
                                                           steps.push_back(step.step);
                                                         },
                                                     .say_report = false});
  });
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_FALSE(logger_->contains("apus merge")) << "the host shows the report";
}

TEST_F(Job, TheSameCommandAfterItsEndSaysSo) {
  const auto first = run_job(1, bench_.options({"sft", "lora"}));
  const auto second = run_job(1, bench_.options({"sft", "lora"}), logger_);
  EXPECT_TRUE(second.was_complete);
  EXPECT_EQ(second.last_checkpoint, first.last_checkpoint);
  EXPECT_EQ(second.steps, 6);
  ASSERT_TRUE(second.report);
  EXPECT_TRUE(second.report->last_loss);
  EXPECT_EQ(second.report->tokens, first.report->tokens);
}

TEST_F(Job, ARankAboveAMatrixIsWarnedOf) {
  auto options = bench_.options({"sft", "lora"});
  options.lora_rank = 512;
  options.max_steps = 1;
  run_job(1, options, logger_);
  EXPECT_TRUE(logger_->contains("--lora_rank 512 is above the smaller side of "));
}

}  // namespace
}  // namespace apus::testing
