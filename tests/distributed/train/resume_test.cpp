// A run that was stopped and started again equals one that never stopped, bit for bit in the same world.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "apus/base/hash.h"
#include "apus/checkpoint/checkpoint.h"
#include "apus/train/run_directory.h"
#include "tests/support/dpo_case.h"

namespace apus::testing {
namespace {

fs::path standard() { return cases::committed_cases_root() / "dpo/standard"; }

/// A job of 12 steps on the committed case that saves every 3 steps.
class Resume : public ::testing::TestWithParam<std::string> {
 protected:
  train::JobOptions options(const std::string& output) {
    auto options = case_options(DpoCase(standard()), model_, scratch_ / output);
    options.deepspeed = GetParam();
    options.per_device_train_batch_size = 1;
    options.gradient_accumulation_steps = 2;
    options.train_dataloader_shuffle = true;
    options.save_steps = 3;
    options.logging_steps = 2;
    options.add_version = true;
    return options;
  }

  ScratchFolder scratch_;
  fs::path model_ = make_model_folder(standard(), scratch_ / "model");
};

std::vector<double> losses(const fs::path& run_dir) {
  std::vector<double> values;
  for (const auto& record : training_records(run_dir)) values.push_back(record.at("loss"));
  return values;
}

/// Removes checkpoints after `step` and what says that the run finished, as if it had been killed there.
void cut_back(const fs::path& run_dir, int64_t step) {
  fs::remove(run_dir / "run.json");
  for (const int64_t later : {3, 6, 9, 12}) {
    if (later > step) fs::remove_all(run_dir / detail::concat("checkpoint-", later));
  }
}

TEST_P(Resume, AfterAKillTheSameCommandGoesOnWithTheSameBits) {
  const auto whole = run_job(2, options("whole"));
  const auto first = run_job(2, options("cut"));
  EXPECT_TRUE(first.finished);
  cut_back(first.run_dir, 6);
  fs::remove_all(first.run_dir / "checkpoint-9.partial");
  const auto second = run_job(2, options("cut"));
  EXPECT_EQ(second.run_dir, first.run_dir);
  EXPECT_EQ(second.steps, 12);
  EXPECT_EQ(losses(second.run_dir), losses(whole.run_dir));
  for (const char* file : {"adapter_model.safetensors", "optimizer/rank-00001-of-00002.safetensors"}) {
    EXPECT_EQ(sha256_file(second.last_checkpoint / file), sha256_file(whole.last_checkpoint / file)) << file;
  }
}

TEST_P(Resume, ASecondResumeGoesOnWhereTheFirstStopped) {
  // pitfalls.md row 35
  const auto whole = run_job(2, options("whole"));
  auto run = run_job(2, options("cut"));
  cut_back(run.run_dir, 3);
  run = run_job(2, options("cut"));
  cut_back(run.run_dir, 9);
  run = run_job(2, options("cut"));
  EXPECT_EQ(losses(run.run_dir), losses(whole.run_dir));
  EXPECT_EQ(sha256_file(run.last_checkpoint / "adapter_model.safetensors"),
            sha256_file(whole.last_checkpoint / "adapter_model.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(Strategies, Resume, ::testing::Values("zero0", "zero2"));

class FinishedRun : public Resume {};
INSTANTIATE_TEST_SUITE_P(Zero2, FinishedRun, ::testing::Values("zero2"));

TEST_P(FinishedRun, TheSameCommandSaysThatItIsComplete) {
  const auto first = run_job(1, options("out"));
  const auto logger = std::make_shared<CaptureLogger>();
  const auto second = run_job(1, options("out"), logger);
  EXPECT_TRUE(second.was_complete);
  EXPECT_EQ(second.last_checkpoint, first.last_checkpoint);
  EXPECT_TRUE(logger->contains("is complete"));
}

TEST_P(FinishedRun, AnotherLearningRateStartsANewVersionAndSaysWhatDiffers) {
  const auto first = run_job(1, options("out"));
  cut_back(first.run_dir, 6);
  auto changed = options("out");
  changed.learning_rate = 1e-3;
  const auto logger = std::make_shared<CaptureLogger>();
  const auto second = run_job(1, changed, logger);
  EXPECT_NE(second.run_dir, first.run_dir);
  EXPECT_TRUE(second.run_dir.filename().string().starts_with("v1-"));
  EXPECT_TRUE(logger->contains("learning_rate: was 0.0005, is 0.001"));
}

TEST_P(FinishedRun, AnotherWorldIsAnErrorThatNamesBoth) {
  const auto first = run_job(2, options("out"));
  cut_back(first.run_dir, 6);
  try {
    run_job(1, options("out"));
    FAIL() << "did not throw";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("with 2 ranks"), std::string::npos) << text;
    EXPECT_NE(text.find("this run has 1"), std::string::npos) << text;
  }
}

TEST_P(FinishedRun, ADamagedNewestCheckpointGivesWayWithAWarning) {
  const auto whole = run_job(2, options("whole"));
  const auto first = run_job(2, options("out"));
  cut_back(first.run_dir, 6);
  const fs::path shard = first.run_dir / "checkpoint-6/optimizer/rank-00001-of-00002.safetensors";
  std::string bytes = read_file(shard);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file_atomic(shard, bytes);
  const auto logger = std::make_shared<CaptureLogger>();
  const auto second = run_job(2, options("out"), logger);
  EXPECT_TRUE(logger->contains("rank-00001-of-00002"));
  EXPECT_TRUE(logger->contains("at step 3"));
  EXPECT_EQ(losses(second.run_dir), losses(whole.run_dir));
}

TEST_P(FinishedRun, AStopTokenSavesAndTheNextRunGoesOn) {
  std::atomic<bool> stop{true};
  train::JobSummary summary;
  run_ranks(2, [&](std::shared_ptr<comm::Communicator> dp) {
    SystemClock clock;
    // Only rank 1 is asked to stop: both must.
    const auto own = train::run_job(options("out"), {.world = dp,
                                                         .logger = std::make_shared<NullLogger>(),
                                                         .clock = &clock,
                                                         .stop = dp->rank() == 1 ? &stop : nullptr});
    if (dp->rank() == 0) summary = own;
  });
  EXPECT_FALSE(summary.finished);
  EXPECT_EQ(summary.steps, 1);
  const auto whole = run_job(2, options("whole"));
  const auto resumed = run_job(2, options("out"));
  EXPECT_EQ(resumed.run_dir, summary.run_dir);
  EXPECT_EQ(losses(resumed.run_dir), losses(whole.run_dir));
}

TEST_P(FinishedRun, ARunKilledAfterItsLastSaveIsFinishedByTheNextCommand) {
  const auto first = run_job(2, options("out"));
  for (const char* name : {"run.json", "last"}) fs::remove(first.run_dir / name);
  const auto logger = std::make_shared<CaptureLogger>();
  const auto second = run_job(2, options("out"), logger);
  EXPECT_TRUE(second.finished);
  EXPECT_EQ(second.last_checkpoint, first.last_checkpoint);
  EXPECT_TRUE(fs::exists(second.run_dir / "run.json"));
  EXPECT_EQ(fs::read_symlink(second.run_dir / "last"), "checkpoint-12");
  EXPECT_FALSE(logger->contains("last loss")) << "no step ran";
}

TEST_P(FinishedRun, StartedFromAFinishedCheckpointItStillOwesAnAdapter) {
  const auto first = run_job(1, options("out"));
  auto named = options("other");
  named.resume_from_checkpoint = first.last_checkpoint.string();
  const auto second = run_job(1, named);
  EXPECT_TRUE(second.finished);
  EXPECT_TRUE(fs::exists(second.run_dir / "checkpoint-12" / "adapter_model.safetensors"));
}

TEST_P(FinishedRun, ALoraFlagThatContradictsTheLoadedAdapterIsRefused) {
  auto contradicting = options("out");
  contradicting.lora_rank = 64;
  try {
    run_job(1, contradicting);
    FAIL() << "did not throw";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("--lora_rank differs from that of the adapter in "), std::string::npos)
        << error.what();
  }
}

TEST_P(FinishedRun, TheRecordAndTheStrategyShowWhatWasResolvedFromTheFiles) {
  const auto logger = std::make_shared<CaptureLogger>();
  const auto run = run_job(1, options("out"), logger);
  const auto args = load_json_file(run.run_dir / "args.json");
  EXPECT_EQ(args.at("lora_rank"), 8) << "the adapter's own";
  EXPECT_EQ(args.at("torch_dtype"), "float32");
  EXPECT_TRUE(logger->contains("\"bf16\":{\"enabled\":false}"));
}

TEST_P(FinishedRun, Bfloat16OnTheCpuTrains) {
  auto bf16 = options("out");
  bf16.bf16 = true;
  const auto logger = std::make_shared<CaptureLogger>();
  const auto run = run_job(2, bf16, logger);
  EXPECT_TRUE(run.finished);
  EXPECT_TRUE(logger->contains("\"bf16\":{\"enabled\":true}"));
  for (const double loss : losses(run.run_dir)) EXPECT_TRUE(std::isfinite(loss));
}

TEST_P(FinishedRun, SaveTotalLimitKeepsTheNewestAndTheBest) {
  auto limited = options("out");
  limited.save_total_limit = 2;
  limited.val_dataset = limited.dataset;
  limited.eval_steps = 3;
  const auto run = run_job(1, limited);
  const auto left = checkpoint::whole_checkpoints(run.run_dir);
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left.back().step, 12);
  EXPECT_EQ(fs::read_symlink(run.run_dir / "last"), "checkpoint-12");
  EXPECT_TRUE(fs::exists(run.run_dir / "best" / "adapter_model.safetensors"));
}

}  // namespace
}  // namespace apus::testing
