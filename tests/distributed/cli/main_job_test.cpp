#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/apus_program.h"

namespace apus::program_tests {
namespace {

namespace fs = std::filesystem;

/// The job that people start with ms-swift today: its arguments, with nothing but the three paths changed.
class MainJob : public testing::Test {
 protected:
  Words arguments(const std::string& learning_rate = "5e-5") const {
    const fs::path toy = fs::path(APUS_SOURCE_DIR) / "examples/quickstart";
    const std::string pairs = (toy / "data/preference.train.jsonl").string() + "#16";
    return {"train",
            "--model",
            (toy / "base").string(),
            "--dataset",
            pairs,
            "--train_type",
            "lora",
            "--lora_rank",
            "64",
            "--lora_alpha",
            "128",
            "--target_modules",
            "q_proj,v_proj,k_proj,o_proj,gate_proj,up_proj,down_proj",
            "--output_dir",
            out_.string(),
            "--deepspeed",
            "zero2",
            "--per_device_train_batch_size",
            "1",
            "--gradient_accumulation_steps",
            "16",
            "--num_train_epochs",
            "3",
            "--learning_rate",
            learning_rate,
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
            "true"};
  }

  /// Version folders, oldest first.
  std::vector<fs::path> versions() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(out_)) {
      if (entry.path().filename().string().starts_with("v")) found.push_back(entry.path());
    }
    std::ranges::sort(found);
    return found;
  }

  ScratchFolder folder_;
  fs::path out_ = folder_ / "out";
};

TEST_F(MainJob, RunsOnFourRanksUnchangedAndIsKnownAgain) {
  const Outcome first = run_apus(arguments(), {{"NPROC_PER_NODE", "4"}});
  ASSERT_EQ(first.code, 0) << first.output;
  for (const char* part :
       {"Using deepspeed config: {", "By its columns, the data is for dpo", "world_size=4, rank=0",
        "world_size=4, rank=3", "Trainable parameters: ", "\"stage\":2",
        "Without effect here, meant for Python programs: --use_fast_tokenizer"}) {
    EXPECT_TRUE(first.says(part)) << part << "\n" << first.output;
  }
  EXPECT_EQ(first.output.find('\x1b'), std::string::npos) << "no bar and no colours in a pipe";
  EXPECT_TRUE(first.says("apus merge --adapters ")) << first.output;
  ASSERT_EQ(versions().size(), 1u);
  const fs::path run = versions()[0];
  EXPECT_TRUE(fs::exists(run / "checkpoint-3/adapter_model.safetensors"));
  EXPECT_TRUE(fs::is_symlink(run / "last"));

  const Outcome again = run_apus(arguments(), {{"NPROC_PER_NODE", "4"}});
  EXPECT_EQ(again.code, 0);
  EXPECT_TRUE(again.says("is complete")) << again.output;
  EXPECT_EQ(versions().size(), 1u);

  const Outcome other = run_apus(arguments("1e-4"), {{"NPROC_PER_NODE", "4"}});
  EXPECT_EQ(other.code, 0) << other.output;
  EXPECT_EQ(versions().size(), 2u);
}

using StoppedJob = TinyJob;

TEST_F(StoppedJob, AChangedLearningRateStartsANewVersionAndSaysWhatDiffers) {
  const Words endless = instead(instead(job("out", 100'000), "--add_version", "true"), "--save_steps", "2");
  const auto stopped = [&](const Words& words) {
    Running running(apus_program(), words, job_environment());
    wait_until("a checkpoint",
               [&] { return running.output().find("Saved ") != std::string::npos || running.ended(); });
    running.send(SIGINT);
    return running.wait();
  };
  const Outcome first = stopped(endless);
  EXPECT_EQ(first.code, 130) << first.output;
  EXPECT_EQ(first.last_line().find("Stopped after step "), 0u) << first.output;
  const Outcome second = stopped(instead(endless, "--learning_rate", "2e-3"));
  EXPECT_TRUE(second.says("not resumed: learning_rate: was 0.001, is 0.002")) << second.output;
  EXPECT_FALSE(second.says("Resuming from ")) << second.output;
  const Outcome third = stopped(instead(endless, "--learning_rate", "2e-3"));
  EXPECT_TRUE(third.says("Resuming from ")) << third.output;
}

}  // namespace
}  // namespace apus::program_tests
