#include "apus/cli/program.h"

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/base/file.h"

namespace apus::cli {
namespace {

/// What a call prints, and its exit code.
struct Outcome {
  int code = 0;
  std::string out;
  std::string error;
};

Outcome call(const std::vector<std::string>& arguments, const Environment& environment = {}) {
  Outcome outcome;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  outcome.code = run_program(arguments, environment);
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.error = testing::internal::GetCapturedStderr();
  return outcome;
}

TEST(Program, SaysItsVersion) {
  EXPECT_EQ(call({"--version"}).out, std::string("apus ") + kVersion + "\n");
  const std::string project = read_file(APUS_SOURCE_DIR "/CMakeLists.txt");
  EXPECT_NE(project.find(std::string("VERSION ") + kVersion + " "), project.npos);
}

TEST(Program, HelpsWithItselfAndItsCommands) {
  const Outcome help = call({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* name : {"dpo", "rlhf", "launch", "infer", "plan"}) {
    EXPECT_NE(help.out.find(std::string("\n  ") + name), help.out.npos) << name;
  }
  EXPECT_NE(call({"dpo", "--help"}).out.find("Usage: apus dpo"), std::string::npos);
  EXPECT_NE(call({"launch", "--help"}).out.find("--max_restarts"), std::string::npos);
}

TEST(Program, WithoutACommandItIsAUsageError) {
  const Outcome outcome = call({});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.error.find("Usage: apus"), std::string::npos);
}

TEST(Program, AnUnknownCommandNamesTheNearest) {
  const Outcome outcome = call({"dop"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.error, "error: unknown command `dop` (did you mean 'dpo'?); `apus --help` lists them\n");
}

TEST(Program, CommandsOfLaterSaySo) {
  for (const char* name : {"sft", "pt", "infer", "merge", "export", "plan", "env", "megatron"}) {
    const Outcome outcome = call({name});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.error, std::string("error: apus ") + name + " is not supported yet\n");
  }
}

TEST(Program, FlagsAreCheckedBeforeRanksAreStarted) {
  const Environment several(Environment::Map{{"NPROC_PER_NODE", "4"}, {"CUDA_VISIBLE_DEVICES", ""}});
  const Outcome outcome = call({"dpo", "--lora_rnak", "8"}, several);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.error, "error: unknown flag --lora_rnak (did you mean 'lora_rank'?)\n");
}

TEST(Program, OnlyRankZeroRepeatsAnErrorThatAllHave) {
  const Environment first(Environment::Map{{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  const Environment second(Environment::Map{{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(call({"dpo", "--seed", "x"}, first).error.find("error: --seed"), 0u);
  const Outcome quiet = call({"dpo", "--seed", "x"}, second);
  EXPECT_EQ(quiet.error, "");
  EXPECT_EQ(quiet.code, 2);
}

TEST(Program, LaunchNeedsACommandAndSaysWhatItCannotDo) {
  EXPECT_NE(call({"launch", "--nproc_per_node=2"}).error.find("apus launch needs `--`"), std::string::npos);
  EXPECT_NE(call({"launch", "--", "infer"}).error.find("apus launch of `infer` is not supported yet"),
            std::string::npos);
  EXPECT_NE(call({"launch", "--max_restarts=3", "--", "dpo"}).error.find("needs --restartable true"),
            std::string::npos);
  EXPECT_NE(call({"launch", "--nproc_per_nod=3", "--", "dpo"}).error.find("did you mean 'nproc_per_node'?"),
            std::string::npos);
}

TEST(Program, ExitCodesFollowTheError) {
  EXPECT_EQ(exit_code_of(ConfigError("x")), 2);
  EXPECT_EQ(exit_code_of(NotSupported("x")), 2);
  EXPECT_EQ(exit_code_of(DataError("f", 1, "x")), 1);
  EXPECT_EQ(exit_code_of(std::runtime_error("x")), 1);
}

}  // namespace
}  // namespace apus::cli
