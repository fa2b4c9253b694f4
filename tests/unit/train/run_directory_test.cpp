#include "apus/train/run_directory.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/checkpoint/manifest.h"
#include "tests/support/scratch_folder.h"

namespace apus::train {
namespace {

namespace fs = std::filesystem;

class RunDirectoryTest : public ::testing::Test {
 protected:
  RunDecision decide(const nlohmann::ordered_json& args, const std::string& resume = "auto") {
    return decide_run(args, {.output_dir = out_.path(), .resume = resume}, clock_);
  }

  /// Opens a run with these args and returns its folder.
  fs::path start(const nlohmann::ordered_json& args) {
    const RunDecision decision = decide(args);
    open_run(decision, args);
    return decision.run_dir;
  }

  /// A checkpoint folder that counts as whole.
  static void put_checkpoint(const fs::path& run, int64_t step) {
    const fs::path folder = run / ("checkpoint-" + std::to_string(step));
    fs::create_directories(folder);
    write_file_atomic(folder / "trainer_state.json", "{\"global_step\": " + std::to_string(step) + "}");
    checkpoint::write_manifest(folder, 4);
  }

  nlohmann::ordered_json args_ = {{"learning_rate", 1e-4}, {"world_size", 4}, {"logging_steps", 5}};
  ScratchFolder out_;
  SystemClock clock_;
};

TEST_F(RunDirectoryTest, TheFirstRunIsVersionZeroWithATimeStamp) {
  const fs::path run = start(args_);
  const std::string name = run.filename().string();
  EXPECT_TRUE(name.starts_with("v0-")) << name;
  EXPECT_EQ(name.size(), std::string("v0-20261130-115700").size()) << name;
  EXPECT_EQ(nlohmann::json::parse(read_file(run / "args.json")).at("world_size"), 4);
}

TEST_F(RunDirectoryTest, AnUnfinishedRunWithEqualArgsIsGoneOnWith) {
  const fs::path run = start(args_);
  EXPECT_EQ(decide(args_).run_dir, run);
  nlohmann::ordered_json other_cadence = args_;
  other_cadence["logging_steps"] = 1;
  EXPECT_EQ(decide(other_cadence).run_dir, run) << "logging_steps is not compared";
  nlohmann::ordered_json moved = args_;
  moved[kModelFolderKey] = "/elsewhere/model";
  EXPECT_EQ(decide(moved).run_dir, run) << "where --model lay is not compared";
}

TEST_F(RunDirectoryTest, ADifferenceStartsTheNextVersionAndIsListed) {
  start(args_);
  args_["learning_rate"] = 2e-4;
  const RunDecision decision = decide(args_);
  EXPECT_TRUE(decision.run_dir.filename().string().starts_with("v1-"));
  ASSERT_EQ(decision.differences.size(), 1u);
  EXPECT_EQ(decision.differences[0], "learning_rate: was 0.0001, is 0.0002");
}

TEST_F(RunDirectoryTest, AFinishedRunIsCompleteUntilItIsOverwritten) {
  const fs::path run = start(args_);
  finish_run(run, 12);
  EXPECT_TRUE(decide(args_).was_complete);
  const RunDecision again = decide_run(args_, {.output_dir = out_.path(), .overwrite = true}, clock_);
  EXPECT_FALSE(again.was_complete);
  EXPECT_NE(again.run_dir, run);
}

TEST_F(RunDirectoryTest, WhatDiffersFromAFinishedRunIsListedUnlessItIsOverwritten) {
  finish_run(start(args_), 12);
  args_["learning_rate"] = 2e-4;
  const RunDecision other = decide(args_);
  EXPECT_FALSE(other.was_complete);
  ASSERT_EQ(other.differences.size(), 1u);
  EXPECT_EQ(other.differences[0], "learning_rate: was 0.0001, is 0.0002");
  EXPECT_TRUE(decide_run(args_, {.output_dir = out_.path(), .overwrite = true}, clock_).differences.empty());
}

TEST_F(RunDirectoryTest, AnotherWorldIsAnErrorOnlyIfNothingElseDiffers) {
  start(args_);
  args_["world_size"] = 2;
  EXPECT_THROW(decide(args_), ConfigError);
  args_["learning_rate"] = 2e-4;
  EXPECT_TRUE(decide(args_).run_dir.filename().string().starts_with("v1-"));
}

TEST_F(RunDirectoryTest, AccumulationThatFollowsTheWorldDoesNotHideAnotherWorld) {
  args_["gradient_accumulation_steps"] = 4;
  start(args_);
  args_["world_size"] = 2;
  args_["gradient_accumulation_steps"] = 8;
  EXPECT_THROW(decide(args_), ConfigError);
}

TEST_F(RunDirectoryTest, EvalStepsThatFollowSaveStepsAreNotCompared) {
  args_["save_steps"] = args_["eval_steps"] = 10;
  const fs::path run = start(args_);
  args_["save_steps"] = args_["eval_steps"] = 20;
  EXPECT_EQ(decide(args_).run_dir, run);
  args_["eval_steps"] = 5;
  EXPECT_NE(decide(args_).run_dir, run);
}

TEST_F(RunDirectoryTest, OverwriteStillGoesOnWithAnUnfinishedRun) {
  const fs::path run = start(args_);
  EXPECT_EQ(decide_run(args_, {.output_dir = out_.path(), .overwrite = true}, clock_).run_dir, run);
}

TEST_F(RunDirectoryTest, StartingAnewInTheSameFolderRemovesTheOldCheckpoints) {
  const RunDirectoryOptions flat{.output_dir = out_.path(), .add_version = false, .overwrite = true};
  open_run(decide_run(args_, flat, clock_), args_);
  put_checkpoint(out_.path(), 6);
  finish_run(out_.path(), 6);
  args_["learning_rate"] = 2e-4;
  const RunDecision decision = decide_run(args_, flat, clock_);
  EXPECT_FALSE(decision.checkpoint.has_value());
  open_run(decision, args_);
  EXPECT_FALSE(fs::exists(out_ / "checkpoint-6"));
}

TEST_F(RunDirectoryTest, ADamagedNewestCheckpointGivesWayToTheOneBefore) {
  const fs::path run = start(args_);
  put_checkpoint(run, 3);
  put_checkpoint(run, 6);
  write_file_atomic(run / "checkpoint-6" / "trainer_state.json", "{\"global_step\": 7}");
  const RunDecision decision = decide(args_);
  EXPECT_EQ(decision.step, 3);
  ASSERT_EQ(decision.damaged.size(), 1u);
  EXPECT_NE(decision.damaged[0].find("checkpoint-6"), std::string::npos) << decision.damaged[0];
}

TEST_F(RunDirectoryTest, ANamedCheckpointStartsANewVersionAndIsThenGoneOnWith) {
  const fs::path first = start(args_);
  put_checkpoint(first, 2);
  const std::string named = (first / "checkpoint-2").string() + "/";
  args_["resume_from_checkpoint"] = named;
  const RunDecision decision = decide(args_, named);
  EXPECT_NE(decision.run_dir, first);
  EXPECT_EQ(decision.step, 2);
  open_run(decision, args_);
  EXPECT_TRUE(fs::exists(first / "checkpoint-2")) << "the named run is left alone";
  put_checkpoint(decision.run_dir, 4);
  const RunDecision again = decide(args_, named);
  EXPECT_EQ(again.run_dir, decision.run_dir);
  EXPECT_EQ(again.step, 4);
}

TEST_F(RunDirectoryTest, AFinishedRunFromANamedCheckpointIsNotWhatThePlainCommandAsksFor) {
  args_["resume_from_checkpoint"] = "other/checkpoint-6";
  const fs::path run = start(args_);
  finish_run(run, 8);
  args_["resume_from_checkpoint"] = "auto";
  const RunDecision decision = decide(args_);
  EXPECT_FALSE(decision.was_complete);
  EXPECT_NE(decision.run_dir, run);
  ASSERT_EQ(decision.differences.size(), 1u);
  EXPECT_NE(decision.differences[0].find("other/checkpoint-6"), std::string::npos);
}

TEST_F(RunDirectoryTest, ResumeNoneAlwaysStartsAnew) {
  start(args_);
  EXPECT_TRUE(decide(args_, "none").run_dir.filename().string().starts_with("v1-"));
}

TEST_F(RunDirectoryTest, AFolderToResumeFromMustBeAWholeCheckpoint) {
  for (const std::string& folder : {(out_ / "checkpoint-3").string(), out_.path().string()}) {
    try {
      decide(args_, folder);
      FAIL() << "did not throw";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("--resume_from_checkpoint " + folder), std::string::npos)
          << error.what();
    }
  }
}

TEST_F(RunDirectoryTest, WithoutVersionsAForeignFolderIsRefused) {
  write_file_atomic(out_ / "thesis.tex", "x");
  EXPECT_THROW(decide_run(args_, {.output_dir = out_.path(), .add_version = false}, clock_), ConfigError);
  const auto forced =
      decide_run(args_, {.output_dir = out_.path(), .add_version = false, .overwrite = true}, clock_);
  EXPECT_EQ(forced.run_dir, out_.path());
}

TEST_F(RunDirectoryTest, TheLogIsCutBackToTheCheckpoint) {
  const fs::path run = start(args_);
  for (const char* step : {"1/4", "2/4", "3/4"})
    append_log(run, {{"loss", 1.0}, {"global_step/max_steps", step}});
  put_checkpoint(run, 2);
  put_checkpoint(run, 3);
  RunDecision decision{.run_dir = run, .checkpoint = run / "checkpoint-2", .step = 2};
  open_run(decision, args_);
  const std::string log = read_file(run / "logging.jsonl");
  EXPECT_NE(log.find("2/4"), std::string::npos);
  EXPECT_EQ(log.find("3/4"), std::string::npos);
  EXPECT_TRUE(fs::exists(run / "checkpoint-2"));
  EXPECT_FALSE(fs::exists(run / "checkpoint-3"));
}

TEST_F(RunDirectoryTest, TheBestStepHasTheLowestEvaluationLoss) {
  const fs::path run = start(args_);
  append_log(run, {{"eval_loss", 0.5}, {"global_step/max_steps", "2/8"}});
  append_log(run, {{"eval_loss", 0.3}, {"global_step/max_steps", "4/8"}});
  append_log(run, {{"eval_loss", 0.4}, {"global_step/max_steps", "6/8"}});
  EXPECT_EQ(best_step(run, {2, 4, 6}), 4);
  EXPECT_EQ(best_step(run, {2, 6}), 6);
  EXPECT_EQ(best_step(run, {8}), std::nullopt);
}

TEST_F(RunDirectoryTest, AnOutputThatCannotBeWrittenNamesThePath) {
  write_file_atomic(out_ / "file", "x");
  const RunDecision decision{.run_dir = out_.path() / "file" / "v0"};
  try {
    open_run(decision, args_);
    FAIL() << "did not throw";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("file"), std::string::npos) << error.what();
  }
}

/// A run with evaluations at steps 2, 4 and 6 and a checkpoint of each.
class EvaluatedRun : public RunDirectoryTest {
 protected:
  void SetUp() override {
    run_ = start(args_);
    const double losses[] = {0.9, 0.5, 0.7}, margins[] = {0.1, 0.2, 0.3};
    for (int i = 0; i < 3; ++i) {
      const int64_t step = 2 * (i + 1);
      append_log(run_, {{"eval_loss", losses[i]},
                        {"eval_rewards/margins", margins[i]},
                        {"global_step/max_steps", std::to_string(step) + "/6"}});
      put_checkpoint(run_, step);
    }
  }

  bool has(int64_t step) const { return fs::exists(run_ / ("checkpoint-" + std::to_string(step))); }

  fs::path run_;
};

TEST_F(EvaluatedRun, TidyKeepsTheNewestAndTheBest) {
  EXPECT_EQ(tidy_checkpoints(run_, {.save_total_limit = 1}).filename(), "checkpoint-6");
  EXPECT_FALSE(has(2));
  EXPECT_TRUE(has(4) && has(6));
  EXPECT_EQ(fs::read_symlink(run_ / "best"), "checkpoint-4");
  EXPECT_EQ(fs::read_symlink(run_ / "last"), "checkpoint-6");
}

TEST_F(EvaluatedRun, TheEndMayBeTheBest) {
  EXPECT_EQ(tidy_checkpoints(run_, {.last_is_best = true}).filename(), "checkpoint-4");
  EXPECT_EQ(fs::read_symlink(run_ / "last"), "checkpoint-4");
}

TEST_F(EvaluatedRun, OtherFiguresAreBetterWhenLarger) {
  EXPECT_EQ(best_step(run_, {2, 4, 6}, "eval_rewards/margins"), 6);
  EXPECT_EQ(best_step(run_, {2, 4, 6}, "rewards/margins"), 6) << "the prefix may be left out";
  EXPECT_EQ(best_step(run_, {2, 4, 6}, "loss"), 4);
  EXPECT_EQ(best_step(run_, {2, 4, 6}, "eval_token_acc"), std::nullopt);
}

TEST_F(RunDirectoryTest, ANamedCheckpointOfAnotherRunListsWhatDiffers) {
  const fs::path run = start(args_);
  put_checkpoint(run, 3);
  write_file_atomic(run / "checkpoint-3/args.json", R"({"learning_rate": 0.5, "world_size": 4})");
  const RunDecision decision = decide(args_, (run / "checkpoint-3").string());
  EXPECT_EQ(decision.named_differences, std::vector<std::string>{"learning_rate: was 0.5, is 0.0001"});
  EXPECT_FALSE(decision.is_checked);
}

TEST_F(RunDirectoryTest, WeightsAloneAreNoCheckpointToGoOnFrom) {
  const fs::path run = start(args_);
  put_checkpoint(run, 3);
  finish_run(run, 3);
  const RunDecision decision = decide_run(
      args_,
      {.output_dir = out_.path(), .resume = (run / "checkpoint-3").string(), .resume_only_model = true},
      clock_);
  EXPECT_FALSE(decision.checkpoint.has_value());
  EXPECT_NE(decision.run_dir, run);
}

TEST_F(RunDirectoryTest, WhereRunsLieIsTriedBeforehandAndLeftAsItWas) {
  EXPECT_NO_THROW(require_writable(out_ / "a/b/c"));
  EXPECT_TRUE(fs::is_empty(out_.path()));
  write_file_atomic(out_ / "file", "x");
  const auto refusal = [](const fs::path& folder) {
    try {
      require_writable(folder);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const fs::path below = out_ / "file/deeper";
  EXPECT_EQ(refusal(below).find("--output_dir " + below.string() + ": cannot create "), 0u) << refusal(below);
  EXPECT_EQ(refusal("/proc/1/runs").find("--output_dir /proc/1/runs: cannot write into "), 0u);
}

}  // namespace
}  // namespace apus::train
